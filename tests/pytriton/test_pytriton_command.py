"""`tisfast pytriton`, and what PyTriton's functional tests are made with."""

import json
import logging
import sys
import zipfile

import pytest

from tests.waiting import wait_until
from tisfast.cli import main
from tisfast.pytriton.check import command
from tisfast.pytriton.check.utils import (
    ProcessMonitoring,
    ScriptThread,
    find_free_port,
    search_warning_on_too_verbose_log_level,
)

pytestmark = pytest.mark.filterwarnings("ignore::tisfast.pytriton.client.warnings.NotSupportedTimeoutWarning")


def test_the_environment_is_written_without_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hidden")
    assert main(["pytriton", "env", "-w", str(tmp_path / "work")]) == 0
    text = (tmp_path / "work" / "environment.json").read_text()
    assert "hidden" not in text
    assert "numpy" in json.loads(text)["packages"]


def test_the_example_serves_and_is_asked(tmp_path, capsys):
    assert main(["pytriton", "example-add-sub", "--workspace", str(tmp_path / "work"), "--zip"]) == 0
    assert "example-add-sub: fine" in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "work.zip") as archive:
        assert "answers as it should" in archive.read("work/check.log").decode()


def test_the_example_runs_as_a_script(tmp_path):
    assert main(["pytriton", "example-add-sub-script", "-w", str(tmp_path / "work")]) == 0
    assert "answers as it should" in (tmp_path / "work" / "add_sub_script.log").read_text()


def test_a_workspace_that_exists_is_an_error(tmp_path, capsys):
    assert main(["pytriton", "env", "-w", str(tmp_path)]) == 1
    assert "cannot be made: File exists" in capsys.readouterr().err


def test_what_fails_is_told_and_kept(tmp_path, monkeypatch, capsys):
    def fail():
        raise ValueError("no answer")

    monkeypatch.setattr(command.add_sub, "run", fail)
    assert main(["pytriton", "example-add-sub", "-w", str(tmp_path / "work")]) == 1
    assert "example-add-sub: failed: no answer" in capsys.readouterr().out
    assert "ValueError: no answer" in (tmp_path / "work" / "example-add-sub.error.txt").read_text()


def test_a_script_runs_in_a_thread_until_it_is_stopped():
    program = """
import signal
import threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
try:
    print("here", flush=True)  # from here on it may be interrupted
    threading.Event().wait()
except KeyboardInterrupt:
    print("stopped")
"""
    with ScriptThread([sys.executable, "-c", program]) as script:
        wait_until(lambda: "here" in script.output)
        assert script.process.poll() is None
    assert script.output == "here\nstopped\n"
    assert script.returncode == 0


def test_processes_are_looked_at(caplog):
    seen = []
    with ScriptThread([sys.executable, "-c", "import threading; threading.Event().wait()"]) as script:
        monitoring = ProcessMonitoring(script.process.pid)
        monitoring.register_custom_monitor(seen.append)
        with caplog.at_level(logging.INFO):
            monitoring.dump_state()
    assert seen == [script.process.pid]
    assert f"process {script.process.pid}: {{'Name': 'python" in caplog.text


def test_small_helpers():
    assert 0 < find_free_port() < 65536
    warning = "WARNING: Triton Inference Server is running with enabled verbose logs (log_verbose=1)"
    assert search_warning_on_too_verbose_log_level(warning)
    assert not search_warning_on_too_verbose_log_level("nothing")
