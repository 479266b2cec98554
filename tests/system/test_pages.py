"""What the pages of the schedulers tell their readers to type works: each page's commands, run against a server."""

from __future__ import annotations

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
