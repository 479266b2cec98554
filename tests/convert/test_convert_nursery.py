"""The nursery that steps are forked from: what they share, what they do not, and whatever becomes of it."""

from __future__ import annotations

import ast
import gc
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

from tests.convert.made_models import network
from tests.waiting import wait_until
from tisfast.convert import step_nursery
from tisfast.convert.formats import shared_by
from tisfast.convert.step_nursery import StepNursery
from tisfast.convert.step_output import StepOutput
from tisfast.convert.steps import StepFailed, run_step
from tisfast.errors import Unavailable
from tisfast.local_server import ROOT

STEPS = """
import os, signal, tempfile, threading
import framework
from tests.convert import faulty_steps

def tell(request, folder):
    found = {"own": os.getpid(), "of": framework.PID, "temporary": tempfile.gettempdir()}
    return {**found, "seen": getattr(framework, "seen", None)}

def change(request, folder):
    framework.seen = True
    return {}

def expire(request, folder):
    os.write(1, b"LICENSE EXPIRED")
    os._exit(7)

def divide(request, folder):
    return 1 / 0

def hang(request, folder):
    threading.Event().wait()

def leave_and_kill_the_keeper(request, folder):
    (folder / "pids").write_text(repr(faulty_steps._left()))
    os.kill(os.getppid(), signal.SIGKILL)
    threading.Event().wait()

def stop_the_nursery(request, folder):
    os.kill(framework.PID, signal.SIGSTOP)
    return {}

def be_killed_with_the_nursery(request, folder):
    (folder / "pid").write_text(str(os.getpid()))
    os.kill(framework.PID, signal.SIGKILL)
    threading.Event().wait()
"""
WAITS_FOR_ALL_CHILDREN = """
def wait():
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            pass
threading.Thread(target=wait, daemon=True).start()
"""
NO_PIDFD = """
def pidfd_open(pid):
    raise OSError(24, os.strerror(24))
os.pidfd_open = pidfd_open
"""
FRAMEWORK = "import io, os, signal, sys, tempfile, threading\nPID = os.getpid()\n"


@pytest.fixture
def framework(tmp_path, monkeypatch):
    """framework(code): a nursery of steps that share a module with this code."""
    (tmp_path / "steps_of_it.py").write_text(STEPS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (temporary := tmp_path / "tmp").mkdir()
    started = []

    def make(code=""):
        (tmp_path / "framework.py").write_text(FRAMEWORK + code)
        started.append(StepNursery("framework", temporary))
        return started[-1]

    yield make
    for each in started:
        each.close()


@pytest.fixture
def run(tmp_path):
    """run(nursery, step): in a folder of its own, in 60 s or so many."""
    number = iter(range(100))

    def run(nursery, step="tell", seconds=60):
        return run_step(nursery, f"steps_of_it.{step}", {}, tmp_path / f"step{next(number)}", seconds)

    return run


def test_what_workers_share_is_shared_by_steps():
    shared = {kind: shared_by(kind) for kind in ("module", "torchscript", "pt2", "savedmodel", "sklearn", "onnx")}
    torch = dict.fromkeys(("module", "torchscript", "pt2"), "torch")
    assert shared == {**torch, "savedmodel": "tensorflow", "sklearn": "sklearn.ensemble", "onnx": ""}


def test_it_is_imported_once_and_each_step_has_it_as_it_was(framework, run, tmp_path):
    nursery = framework("tempfile.gettempdir()\n")
    first = run(nursery)
    run(nursery, "change")
    again = run(nursery)
    assert first["of"] == again["of"] and len({first["of"], first["own"], again["own"]}) == 3
    assert (first["seen"], again["seen"]) == (None, None)
    assert [first["temporary"], again["temporary"]] == [str(tmp_path / f"step{at}" / "tmp") for at in (0, 2)]
    nursery.close()
    assert not psutil.pid_exists(first["of"])


def test_where_it_cannot_be_imported_each_step_says_so(framework, run):
    nursery = framework("import numpy.nix\n")
    for _ in range(2):
        with pytest.raises(StepFailed, match=r"^ModuleNotFoundError: No module named 'numpy.nix'$"):
            run(nursery)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.kill(PID, signal.SIGILL)", r"the framework crashed \(SIGILL\): terminate called"),
        ("os._exit(7)", "^terminate called$"),
        ("sys.exit('LICENSE EXPIRED')", "^terminate called LICENSE EXPIRED$"),
    ],
)
def test_where_its_import_ends_the_process_the_reason_is_the_frameworks(framework, run, code, reason):
    nursery = framework(f"print('terminate called', flush=True)\n{code}\n")
    for _ in range(2):
        with pytest.raises(StepFailed, match=reason):
            run(nursery)


def test_an_import_that_hangs_is_ended(framework, run, tmp_path):
    pid = tmp_path / "pid"
    nursery = framework(f"open({str(pid)!r}, 'w').write(str(PID))\nthreading.Event().wait()\n")
    with pytest.raises(StepFailed, match="longer than 4 s; --step-seconds"):
        run(nursery, seconds=4)
    assert not psutil.pid_exists(int(pid.read_text()))


def test_an_import_that_says_a_lot_goes_on(framework, run):
    assert run(framework("for _ in range(1 << 10):\n    os.write(1, b'x' * (1 << 16))\n"))["of"]


def killed(nursery, run):
    pid = run(nursery)["of"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid))
    return pid


def test_one_that_was_killed_between_steps_is_started_again(framework, run):
    nursery = framework()
    pid = killed(nursery, run)
    assert run(nursery)["of"] != pid


def test_one_that_is_killed_ends_its_step(framework, run, tmp_path):
    nursery = framework()
    with pytest.raises(StepFailed, match=r"the framework crashed \(SIGKILL\)"):
        run(nursery, "be_killed_with_the_nursery")
    assert not psutil.pid_exists(int((tmp_path / "step0" / "pid").read_text()))
    assert run(nursery)["of"]


def test_where_it_cannot_fork_there_is_a_sentence(framework, run):
    nursery = framework("def fork():\n    raise BlockingIOError(11, os.strerror(11))\nos.fork = fork\n")
    with pytest.raises(Unavailable, match=r"no process could be started .* \(Resource temporarily un.*ulimit -u"):
        run(nursery)


def test_threads_of_what_is_imported_are_no_hindrance(framework, run, monkeypatch):
    """Of which newer Pythons warn."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    code = "import time\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    assert run(framework(code))["of"]


@pytest.mark.parametrize("code", ["signal.SIG_IGN", "lambda *_: os.waitpid(-1, os.WNOHANG)"])
def test_what_an_import_does_with_ends_of_children_is_no_hindrance(framework, run, code):
    assert run(framework(f"signal.signal(signal.SIGCHLD, {code})\n"))["of"]


def test_one_that_does_not_answer_is_ended(framework, run, monkeypatch):
    monkeypatch.setattr(step_nursery, "END_SECONDS_MAX", 0.5)
    nursery = framework()
    with pytest.raises(StepFailed, match="its exit status is not known"):
        run(nursery, "stop_the_nursery")
    assert run(nursery)["of"]


def test_where_somebody_else_is_told_how_steps_end_none_succeeds(framework, run):
    """It cannot be known whether the framework crashed at its end."""
    nursery = framework(WAITS_FOR_ALL_CHILDREN)
    with pytest.raises(StepFailed, match="not known: the process that forks the steps did not tell it and was ended"):
        for _ in range(10):  # once in a while the nursery is told first
            run(nursery)


def test_where_there_is_no_pidfd_of_a_step_there_is_a_sentence(framework, run):
    nursery, own = framework(NO_PIDFD), Own()
    with pytest.raises(Unavailable, match=r"no process could be started .* \(Too many open files\)"):
        run(nursery)
    assert own.nothing_more()


def test_where_it_ends_in_the_last_moment_it_has_crashed(framework, run, monkeypatch):
    nursery = framework()
    killed(nursery, run)
    looked = iter([False])
    found = step_nursery._can_be_read
    monkeypatch.setattr(step_nursery, "_can_be_read", lambda *given: next(looked, None) is None and found(*given))
    with pytest.raises(StepFailed, match=r"the framework crashed \(SIGKILL\)"):
        run(nursery)


def test_temporary_files_of_an_import_go_with_the_conversion(framework, run, tmp_path):
    run(framework("tempfile.mkdtemp(prefix='of-the-import')\n"))
    assert [each.name[:13] for each in (tmp_path / "tmp").iterdir()] == ["of-the-import"]


def test_what_it_prints_before_it_imports_is_of_the_first_step(framework, run, tmp_path, capfd):
    (tmp_path / "sitecustomize.py").write_text("import os\nprint('hello', flush=True)\ndel os.fork\n")
    with pytest.raises(StepFailed, match=r"hello.*AttributeError: module 'os' has no attribute 'fork'"):
        run(framework())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_where_standard_streams_are_closed_it_works(tmp_path, closed):
    options = "--target onnx --precision fp32 -o out --seconds 0.1 --concurrency 1"
    command = f"{sys.executable} -m tisfast convert {network(tmp_path)} {options} {closed}"
    there = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=there, check=False)
    assert done.returncode == 0 and (tmp_path / "out" / "net" / "1" / "model.onnx").exists()


class Own:
    """Files and children of this process, but for those that other tests have left in it."""

    def __init__(self):
        gc.collect()
        self.files, self.children = self.now()

    def now(self):
        with os.scandir("/proc/self/fd") as found:
            names = [each.path for each in found]
        return {(each, os.readlink(each)) for each in names if os.path.lexists(each)}, set(psutil.Process().children())

    def nothing_more(self):
        files, children = self.now()
        return not files - self.files and not children - self.children


def test_where_there_is_no_pidfd_nothing_is_left(framework, run, monkeypatch):
    nursery, own = framework(), Own()
    monkeypatch.setattr(step_nursery.os, "pidfd_open", lambda _: os.close(1 << 20))
    with pytest.raises(Unavailable, match=r"no process could be started .* \(Bad file descriptor\)"):
        run(nursery)
    assert own.nothing_more()


def test_ctrl_c_while_it_starts_leaves_nothing(framework, run, monkeypatch):
    nursery, own, started = framework(), Own(), subprocess.Popen

    def interrupted(*given, **named):
        signal.raise_signal(signal.SIGINT)
        return started(*given, **named)

    monkeypatch.setattr(step_nursery.subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(nursery)
    assert own.nothing_more()


def test_an_end_leaves_no_files(framework, run):
    nursery, own = framework(), Own()
    run(nursery)
    killed(nursery, run)
    run(nursery)
    nursery.close()
    assert own.nothing_more()


def test_ctrl_c_while_a_step_is_ended_leaves_nothing(framework, run, monkeypatch, tmp_path):
    nursery, own, send = framework(), Own(), signal.pidfd_send_signal

    def interrupted(*given):
        signal.raise_signal(signal.SIGINT)
        send(*given)

    monkeypatch.setattr(step_nursery.signal, "pidfd_send_signal", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(nursery, "hang", seconds=4)
    monkeypatch.undo()
    nursery.close()
    assert own.nothing_more() and not (tmp_path / "step0" / "tmp").exists()


def test_ctrl_c_behind_the_end_of_a_step_leaves_nothing(framework, run, monkeypatch, tmp_path):
    nursery, own, close = framework(), Own(), StepOutput.close

    def interrupted(self):
        signal.raise_signal(signal.SIGINT)
        return close(self)

    monkeypatch.setattr(StepOutput, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(nursery)
    nursery.close()
    assert own.nothing_more() and not (tmp_path / "step0" / "tmp").exists()


def test_where_no_more_files_can_be_opened_its_end_leaves_nothing(framework, run):
    nursery, own = framework(), Own()
    run(nursery)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(os.path.basename(path)) for path, _ in own.now()[0])
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, most[1]))
    filled = []
    try:
        with suppress(OSError):
            while True:
                filled.append(os.dup(0))
        nursery.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        for each in filled:
            os.close(each)
    assert own.nothing_more()


def test_of_a_step_whose_keeper_is_killed_nothing_stays(framework, run, tmp_path):
    nursery = framework()
    with pytest.raises(StepFailed, match=r"the framework crashed \(SIGKILL\)"):
        run(nursery, "leave_and_kill_the_keeper")
    left = ast.literal_eval((tmp_path / "step0" / "pids").read_text())
    assert len(left) == 4 and not any(map(psutil.pid_exists, left))


def test_a_step_that_has_gone_when_it_is_told_to_end(framework, run, monkeypatch):
    """As the nursery was killed while this program was stopped."""
    nursery, read, said = framework(), StepOutput.read_until, []

    def has_gone(pidfd):
        try:
            signal.pidfd_send_signal(pidfd, 0)
        except ProcessLookupError:
            return True
        return False

    def late(self, awaited, until):
        said.append(read(self, awaited, until))
        if len(said) == 2:
            wait_until(lambda: has_gone(awaited))
        return said[-1] and len(said) != 2

    monkeypatch.setattr(StepOutput, "read_until", late)
    with pytest.raises(StepFailed, match="took longer"):
        run(nursery, "be_killed_with_the_nursery")


def test_a_number_that_may_be_anothers_is_let_alone(tmp_path):
    """The kernel forgets children of a program that ignores their ends."""
    program = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); from pathlib import Path; asked = []; "
        "from tisfast.convert import step_nursery; step_nursery.end_session = asked.append; "
        "from tests.convert.test_convert_steps import run_step; "
        f"print(run_step('tests.convert.faulty_steps.echo', {{}}, Path({str(tmp_path / 'step')!r}), 60), asked)"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.stdout == "{} []\n", ran.stderr


@pytest.mark.parametrize(
    "end",
    ["sys.stdout.close()", "sys.stdout = None", "sys.stderr.detach()", "sys.stderr = io.BytesIO()", "del sys.stdout"],
)
def test_streams_that_an_import_closes_are_no_hindrance(framework, run, end):
    nursery = framework(f"{end}\n")
    assert run(nursery)["of"]
    with pytest.raises(StepFailed, match="^ZeroDivisionError: division by zero$"):
        run(nursery, "divide")


def test_what_a_step_prints_is_heard_though_the_import_has_closed_it(framework, run):
    nursery = framework("os.close(1)\n")
    for _ in range(2):
        with pytest.raises(StepFailed, match="LICENSE EXPIRED"):
            run(nursery, "expire")
