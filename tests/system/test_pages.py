"""What pages tell their readers to type works: their commands and programs, run against a server."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.system.helpers import ROOT

PAGES = (
    *("batching", "bls", "cache", "custom_metrics", "decoupled", "ensembles", "rate_limiter", "rescheduling"),
    *("sequences", "warmup"),
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SERVE = re.compile(r"tisfast serve --model-repository (examples/\w+)(.*)\n")


def commands_of(page):
    """(repository, flags, what is typed then): of the first server that a page starts."""
    blocks = BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())
    typed = [text for language, text in blocks if not language and ("examples/" in text or "curl" in text)]
    start = SERVE.search("".join(typed))
    assert start is not None, page
    rest = "".join(typed).replace(start[0], "")
    return start[1], shlex.split(start[2].removesuffix("&")), rest


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("page", PAGES)
def test_its_commands_work(page, serve):
    repository, flags, typed = commands_of(page)
    server = serve(*flags, repository=ROOT / repository).ready()
    metrics = server.says("is ready after")["metrics_port"]
    typed = re.sub(r"^python (\S+)", rf"{sys.executable} \1 --url localhost:8000", typed, flags=re.MULTILINE)
    for port, ours in ((8000, server.port), (8002, metrics)):
        typed = typed.replace(f"localhost:{port}", f"127.0.0.1:{ours}")
    typed = f'curl() {{ command curl -sS --fail-with-body --max-time 20 "$@" || echo FAILED; }}\n{typed}'
    done = subprocess.run(["bash", "-c", typed], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.strip(), done
    assert "FAILED" not in done.stdout and "error" not in done.stdout and not done.stderr, done


def test_the_example_of_shared_memory_works(serve, tmp_path):
    page = (ROOT / "docs/shared_memory.md").read_text()
    repository, flags = SERVE.search(page).groups()
    (program,) = [text for language, text in BLOCK.findall(page) if language == "python"]
    (said,) = re.findall(r"^print\(.*\)  # (.*)$", program, re.MULTILINE)
    server = serve(*shlex.split(flags), repository=ROOT / repository).ready()
    key = f"/page-{os.getpid()}"  # another run of this test has its own
    for theirs, ours in (("localhost:8000", f"127.0.0.1:{server.port}"), ('"/mine"', f'"{key}"')):
        assert theirs in program
        program = program.replace(theirs, ours)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{said}\n", ""), done.stderr
    assert not os.path.exists(f"/dev/shm{key}")
    assert server.ask("GET", "/v2/systemsharedmemory/status") == (200, [])
