"""`tisfast bench` whose standard output goes away: the files are written all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.bench.stub_server import StubServer
from tests.system.helpers import ROOT, until

SHORT = ["-p", "100", "-s", "1000000", "-r", "100"]


def started(port: int, stdout: int, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tisfast", "bench", "-m", "stub", "-u", f"127.0.0.1:{port}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def closed_pipe():
    """Nobody reads what is written to it."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture
def full_disk():
    full = os.open("/dev/full", os.O_WRONLY)
    yield full
    os.close(full)


def test_a_closed_pipe_loses_no_file(closed_pipe, tmp_path):
    with StubServer() as stub, started(stub.port, closed_pipe, *SHORT, "--json", tmp_path / "run.json") as process:
        assert (process.communicate(timeout=60)[1], process.returncode) == ("", 1)
    assert json.loads((tmp_path / "run.json").read_text())["levels"][0]["completed"] > 0


def test_without_files_a_closed_pipe_ends_it_at_once(closed_pipe):
    with StubServer() as stub, started(stub.port, closed_pipe, "-r", "100") as process:
        assert (process.communicate(timeout=60)[1], process.returncode) == ("", 1)
        assert stub.count == 1


def test_a_full_disk_loses_no_file_and_is_told(full_disk, tmp_path):
    with StubServer() as stub, started(stub.port, full_disk, *SHORT, "--json", tmp_path / "run.json") as process:
        err = process.communicate(timeout=60)[1]
    assert (err, process.returncode) == (
        "error: standard output could not be written (No space left on device): what was to be shown is lost\n",
        99,
    )
    assert json.loads((tmp_path / "run.json").read_text())["levels"][0]["completed"] > 0


def test_ctrl_c_keeps_the_figures_although_it_ended_the_reader_too(tmp_path):
    """As in `tisfast bench ... | tee log`: both get the signal."""
    reading, writing = os.pipe()
    with StubServer() as stub, started(stub.port, writing, "-r", "100", "--json", tmp_path / "run.json") as process:
        os.close(writing)
        until(lambda: stub.count > 50, "asked")
        os.close(reading)
        process.send_signal(signal.SIGINT)
        assert (process.communicate(timeout=60)[1], process.returncode) == ("", 1)
    (level,) = json.loads((tmp_path / "run.json").read_text())["levels"]
    assert level["completed"] > 0
    assert "it was interrupted" in level["reason"]
