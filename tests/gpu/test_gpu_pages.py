"""The examples of docs/gpu.md and of README.md here, as a reader pastes them: all that is in them is the page's own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.gpu_models import copies
from tests.gpu.stand_in_driver import StandIn
from tests.system.helpers import ROOT, until

PAGE = (ROOT / "docs/gpu.md").read_text()
STAND_INS = Path(__file__).parent / "page_stand_ins"
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
FOLDERS = re.findall(r"^(mkdir .*)$", PAGE, re.MULTILINE)
STARTS = re.findall(r"^tisfast serve --model-repository models (.*)$", PAGE, re.MULTILINE)
PRINTS = re.findall(r"`python client.py` prints `(.*)`", PAGE)
PACKAGES = re.findall(r"^pip install (.*)$", PAGE, re.MULTILINE)


def test_the_example_runs(gpu, serve, tmp_path):
    """Model and client find torch and cuda-python, or stand-ins for what they use of them where there is no GPU."""
    assert set(FILES) == {"models/add_one/config.pbtxt", "models/add_one/1/model.py", "client.py"}
    assert (len(FOLDERS), len(STARTS), len(PRINTS)) == (1, 1, 1)
    assert shlex.split(*PACKAGES) == ["torch", "tritonclient[cuda,http]"]
    subprocess.run(shlex.split(*FOLDERS), cwd=tmp_path, check=True)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    environment = dict(os.environ)
    if isinstance(gpu, StandIn):
        shutil.copy(STAND_INS / "model/torch.py", tmp_path / "models/add_one/1")
        environment["PYTHONPATH"] = str(STAND_INS / "client")
    else:
        pytest.importorskip("torch")
        pytest.importorskip("cuda.bindings", reason="tritonclient's CUDA regions need cuda-python")
    server = serve(*shlex.split(*STARTS)).ready()
    program = tmp_path / "client.py"
    assert program.read_text().count("localhost:8000") == 1
    program.write_text(program.read_text().replace("localhost:8000", f"127.0.0.1:{server.port}"))
    before = gpu.counted()
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{PRINTS[0]}\n", ""), done.stderr
    # The client's two, the two of the stand-in for torch as it adds, and the server's one: on the GPU.
    assert copies(gpu, before) == [2, 2, 1]
    assert server.ask("GET", "/v2/cudasharedmemory/status") == (200, [])


def test_a_server_on_the_stand_in_by_hand(serve, tmp_path, monkeypatch):
    page = (Path(__file__).parent / "README.md").read_text()
    (shell,) = re.findall(r"^```\n(export .*?)^```", page, re.MULTILINE | re.DOTALL)
    client, fault = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^This prints `(.*?)`", page, re.MULTILINE)
    *steps, start = shell.replace(".venv/bin/python", shlex.quote(sys.executable)).splitlines()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = "\n".join([*steps, "echo $TISFAST_STAND_IN"])
    found = subprocess.run(["bash", "-ec", script], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    folder = found.stdout.strip()
    monkeypatch.setenv("TISFAST_STAND_IN", folder)
    monkeypatch.setenv("LD_LIBRARY_PATH", folder)
    monkeypatch.setenv("PYTHONPATH", ".")
    repository, flag = shlex.split(start)[-2:]
    server = serve(flag, repository=Path(repository.replace("$TISFAST_STAND_IN", folder))).ready()
    assert client.count("localhost:8000") == 1
    client = client.replace("localhost:8000", f"127.0.0.1:{server.port}")

    def run(program):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    of_host = client.replace("identity", "host")
    assert of_host != client
    for program in (client, of_host):
        assert [run(each) for each in (program, fault)] == [(0, f"{printed}\n", ""), (0, "", "")]
        assert "unspecified launch failure" in run(program)[2]
    assert run(client) == (0, f"{printed}\n", "")
    assert until(lambda: server.text().count("the server has lost GPU 0 (GPU-") == 2, "it has lost the GPU twice")
