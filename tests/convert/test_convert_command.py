"""The command: its table, its exit codes, and Ctrl-C."""

from __future__ import annotations

import errno
import io
import os
import pty
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import psutil
import pytest

pytest.importorskip("onnxruntime")

from tests.convert.made_models import converted, network, too_large_for_fp16  # noqa: E402
from tests.waiting import wait_until  # noqa: E402
from tisfast import cli  # noqa: E402
from tisfast.convert import Interrupted  # noqa: E402
from tisfast.convert.held_signals import SIGNALS  # noqa: E402
from tisfast.errors import Unavailable  # noqa: E402
from tisfast.local_server import ROOT  # noqa: E402

SHORT = ["--seconds", "0.1", "--concurrency", "1", "--target", "onnx"]


def command(*arguments: object) -> int:
    return cli.main(["convert", *map(str, arguments)])


def test_the_table_has_all_tries_and_the_best(tmp_path, capsys):
    assert command(network(tmp_path), "-o", tmp_path / "out", *SHORT) == 0
    told = capsys.readouterr().out
    lines = told.splitlines()
    assert lines[0].split()[:2] == ["format", "result"] and lines[1].startswith("onnx fp32") and "ok" in lines[2]
    assert "Compared with the source: 8 samples, alone and in batches of 8." in told
    assert "Note: the samples are random numbers" in told and "Best: onnx fp" in told
    assert f"Written: {tmp_path / 'out' / 'net'}; serve it with: tisfast serve --model-repository" in told
    # What it has written before is replaced.
    assert command(network(tmp_path), "-o", tmp_path / "out", *SHORT) == 0


def test_a_constraint_that_nothing_holds_has_its_own_exit_code(tmp_path, capsys):
    assert command(too_large_for_fp16(tmp_path), "-o", tmp_path / "out", *SHORT, "--precision", "fp16") == 3
    told = capsys.readouterr().out
    assert "onnx fp16: wrong: output 'y' of sample 0" in told
    assert "Nothing was chosen: no format could be made whose answers are the source's." in told


def test_what_is_wrong_is_a_sentence(tmp_path, capsys):
    for arguments, said in [
        ([tmp_path / "nix.onnx", "-o", tmp_path], "nix.onnx: there is no such file"),
        ([network(tmp_path), "-o", tmp_path, "--max-latency", "soon"], "'soon' is no number"),
        ([network(tmp_path)], "the following arguments are required: -o"),
        ([network(tmp_path), "-o", tmp_path, "--nix"], "unrecognized arguments: --nix"),
    ]:
        assert command(*arguments) == 1
        assert said in capsys.readouterr().err


INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from tisfast.cli import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def running(tmp_path, *arguments, stdout=subprocess.PIPE):
    """A command with long loads, and its temporary folder, which is empty behind it."""
    command = ["convert", network(tmp_path), "-o", tmp_path / "a" / "out", "--seconds", "60", *arguments]
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:  # sockets have short paths
        with subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, *map(str, command)], cwd=ROOT,
            env={**os.environ, "TMPDIR": scratch}, stdout=stdout, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            yield process
        wait_until(lambda: not os.listdir(scratch), lambda: str(os.listdir(scratch)))
        # One that had just been started sees by itself that its parent has ended.
        wait_until(lambda: not list(_made_in(scratch)), lambda: str(list(_made_in(scratch))))


def _made_in(scratch):
    for each in psutil.process_iter(["environ"]):
        if (each.info["environ"] or {}).get("TMPDIR", "").startswith(scratch):
            yield each


@pytest.mark.parametrize(
    ("moment", "number"),
    [("itself", signal.SIGINT), ("onnx fp32", signal.SIGTERM), ("onnx fp16", signal.SIGHUP),
     ("measured", signal.SIGINT), ("measured", signal.SIGTERM), ("measured", signal.SIGHUP)],
)  # fmt: skip
def test_a_signal_ends_it_and_leaves_nothing(tmp_path, moment, number):
    """While a framework runs, and while a server is measured.  An impatient user sends several."""
    with running(tmp_path, *(["--seconds", "0.1"] if moment == "onnx fp16" else [])) as process:
        assert any(moment in line for line in process.stderr)
        for _ in range(3):
            process.send_signal(number)
        rest = process.stderr.read()
        said = process.stdout.read()
    assert process.returncode == 128 + number and "tisfast: interrupted: no model was written" in rest, rest
    assert not (tmp_path / "a").exists() and "Traceback" not in rest
    # What was measured until then is told.
    assert ("onnx fp32" in said) == (moment == "onnx fp16"), said
    if said:
        assert "Nothing was chosen: it was interrupted, and 1 of 6 were tried." in said and "Written" not in said


def test_who_is_told_nothing_ends_as_ever(tmp_path):
    """The terminal is gone, and the signal is ignored (nohup)."""
    program = INTERRUPTIBLE.replace("signal.SIGINT, signal.default_int_handler", "signal.SIGHUP, signal.SIG_IGN")
    command = ["convert", network(tmp_path), "-o", tmp_path / "out", *SHORT, "--precision", "fp32"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stderr.readline()
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        said = process.stdout.read().decode()
    assert process.returncode == 0 and "Written" in said


def test_the_exit_code_does_not_depend_on_who_reads(tmp_path):
    """A pipe without a reader: the model is there."""
    command = ["convert", network(tmp_path), "-o", tmp_path / "out", *SHORT, "--precision", "fp32"]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *map(str, command)], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdout.close()
        rest = process.stderr.read()
    assert process.returncode == 0 and rest.splitlines()[-1].startswith("... writing"), rest
    assert (tmp_path / "out" / "net" / "config.pbtxt").exists()


def test_a_terminal_that_goes_ends_it_with_the_last_line(tmp_path):
    """Its SIGHUP comes when nothing can be written there any more."""
    ours, theirs = pty.openpty()
    with running(tmp_path, "--precision", "fp32", stdout=theirs) as process:
        os.close(theirs)
        assert any("measured" in line for line in process.stderr)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        rest = process.stderr.readline()  # the last line: another signal comes while the process ends
        process.send_signal(signal.SIGHUP)
        rest += process.stderr.read()
    assert process.returncode == 128 + signal.SIGHUP and rest == "tisfast: interrupted: no model was written\n", rest


def test_where_a_server_cannot_be_started_the_reason_names_that(tmp_path, monkeypatch):
    """And not the temporary folder."""
    started = subprocess.Popen

    def refused(command, **options):
        if "serve" in command:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return started(command, **options)

    monkeypatch.setattr(subprocess, "Popen", refused)
    (found,) = converted(network(tmp_path), targets=["onnx"], precisions=["fp32"]).tries
    assert found.status == "failed" and "the server could not be started (Resource temporarily" in found.reason


def test_what_the_system_refuses_elsewhere_is_told_with_what_was_done(tmp_path):
    def told(text):
        if text == "onnx fp32":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/proc")

    with pytest.raises(Unavailable, match="^'onnx fp32' failed: Too many open files: /proc$"):
        converted(network(tmp_path), targets=["onnx"], told=told)


class Interrupting(io.StringIO):
    """A stderr that sends Ctrl-C when the reports are about to be written."""

    def write(self, text):
        if "writing" in text:
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)


@pytest.fixture
def handlers():
    """A process that was interrupted keeps deaf ears until it ends; this one goes on."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
def test_ctrl_c_while_reports_are_written_says_that_the_model_is_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Interrupting())
    assert command(network(tmp_path), "-o", tmp_path / "out", *SHORT, "--precision", "fp32") == 130
    assert f"tisfast: interrupted: the model {tmp_path / 'out' / 'net'} was written" in sys.stderr.getvalue()
    assert f"Written: {tmp_path / 'out' / 'net'};" in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path / "out")) == ["net", "report.html", "report.json"]


def test_from_python_an_interruption_has_what_was_measured(tmp_path):
    def told(text):
        if text == "onnx fp16":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        converted(network(tmp_path), targets=["onnx"], output=tmp_path / "out", told=told)
    assert [each.name for each in caught.value.found.tries] == ["onnx fp32"] and caught.value.found.best is None
    assert not (tmp_path / "out").exists()


INTERRUPTED = """
import os, signal, sys
from tisfast import cli
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "tisfast.cli_convert":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
sys.exit(cli.main(["convert", "a.onnx", "-o", "b"]))
"""


def test_ctrl_c_while_modules_are_read_is_a_sentence():
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (130, "tisfast: interrupted\n")
