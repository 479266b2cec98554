"""Ends of workers: those that hang, and what is told of each."""

import errno
import itertools
import logging
import os
import signal

import pytest

from tests.processes.streams import CONFIG, MODEL
from tests.unkillable import is_held, unkillable
from tests.waiting import Gate, until
from tisfast import limits
from tisfast.errors import TisError
from tisfast.models.lifecycle import LoadOrder
from tisfast.processes import machine
from tisfast.processes.instance import InstanceState
from tisfast.types import Status

CRASH = "import ctypes; threading.Thread(target=ctypes.string_at, args=(0,)).start(); threading.Event().wait()"
WAITS = "s.send(answer(1)); threading.Event().wait()"
WARM_UP = """
model_warmup [ {
  name: "s" batch_size: 1 inputs { key: "CODE" value: { data_type: TYPE_STRING dims: [ 1 ] zero_data: true } }
} ]
"""


def ends_control_thread(raised, before=""):
    """What a model is to do."""
    return (
        f"{before}import ctypes\n"
        "hears = next(each for each in threading.enumerate() if each.name == 'tisfast-control')\n"
        f"ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(hears.ident), ctypes.py_object({raised}))\n"
        "pb.Logger.log_error('wakes it')\n"
        "threading.Event().wait()"
    )


@pytest.fixture
def killed(monkeypatch):
    """Processes are looked at often; the signals that the server has sent."""
    sent, send = [], signal.pidfd_send_signal
    monkeypatch.setattr(limits, "WATCHDOG_SECONDS_MAX", 0.02)
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda fd, number: (sent.append(number), send(fd, number)))
    return sent


@pytest.fixture
def soon(monkeypatch, killed):
    """The server goes on soon without a process that does not end."""
    monkeypatch.setattr(limits, "KILL_SECONDS_MAX", 0.2)


@pytest.fixture
def gated(tmp_path, run):
    """A part of a model, `code`: while the file `on` is there, `wait()` waits at `gate`, and `end()` ends behind it."""

    class Gated:
        gate, on, pid_file = Gate(tmp_path / ".gate"), tmp_path / ".on", tmp_path / ".pid"
        code = f"""
def wait():
    if not os.path.exists({str(on)!r}):
        return False
    with open("{pid_file}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("{pid_file}.new", {str(pid_file)!r})
    {gate.wait}
    return True
def end():
    if wait():
        os._exit(3)
"""

        def pid(self):
            """Of the process that waits."""
            run(until(self.pid_file.exists))
            return int(self.pid_file.read_text())

    return Gated()


@pytest.mark.parametrize("raised", ["SystemExit", "TimeoutError"])
def test_a_process_whose_control_thread_a_model_has_ended_ends_and_its_requests_are_told_why(
    streams, run, caplog, monkeypatch, raised
):
    monkeypatch.setattr(machine, "oom_kills", itertools.count().__next__)  # the kernel kills others meanwhile
    m = streams()
    pid = m.instance.pid
    m.ask(ends_control_thread(raised))
    [(status, told, final)] = m.until_final()
    assert (status, final) == (Status.UNAVAILABLE, True)
    why = (
        f"exited with code 1 (its thread 'tisfast-control', which hears the server, was ended by {raised}. If the "
        "model or a library ends threads, it has to leave this one alone)"
    )
    assert f"instance m_0 {why} while it executed this request; retrying is safe" in told
    logged = f"instance m_0 of model 'm' (pid {pid}) {why}; its process lived for"
    assert any(each.startswith(logged) for each in caplog.messages)
    assert "m_0: Traceback (most recent call last):" in caplog.messages
    run(until(lambda: m.instance.state is InstanceState.READY and m.instance.pid != pid))
    m.ask("s.send(answer(2), FINAL)")
    assert m.until_final(2)[-1] == (0, [[2]], True)


def test_what_a_control_thread_has_to_say_last_waits_for_no_pipe_that_nobody_reads(streams):
    m = streams()
    full = (
        "from tisfast_worker import limits\n"
        "limits.STOPPED_FLUSH_SECONDS_MAX = .1\n"
        "end, write = os.pipe()\n"
        "os.set_blocking(write, False)\n"
        "try:\n"
        "    while True: os.write(write, bytes(4096))\n"
        "except BlockingIOError:\n"
        "    os.set_blocking(write, True)\n"
        "os.dup2(write, 2)\n"
    )
    m.ask(ends_control_thread("SystemExit", full))
    [(_, told, _)] = m.until_final()
    assert "instance m_0 exited with code 1 while it executed this request" in told


def test_nobody_but_its_killer_is_blamed_for_the_slow_end_of_a_process(streams, run, killed):
    """One that gives back much memory takes as long."""
    m = streams()
    m.ask(WAITS)
    run(until(lambda: m.calls))
    with unkillable(m.instance.pid):
        os.kill(m.instance.pid, signal.SIGKILL)
        run(until(lambda: is_held(m.instance.pid) and killed))
    _, told, _ = m.until_final()[-1]
    assert "instance m_0 was killed by signal 9 (SIGKILL) while it executed this request" in told


@pytest.mark.parametrize(
    ("code", "told"),
    [("os._exit(3)", "exited with code 3"), (CRASH, "was killed by signal 11 (SIGSEGV)")],
    ids=["exits", "crashes"],
)
@pytest.mark.usefixtures("soon")
def test_an_end_that_hangs_is_told_as_what_it_was_when_it_is_over(streams, run, caplog, code, told):
    caplog.set_level(logging.INFO, "tisfast.processes")
    m = streams()
    pid = m.instance.pid
    with unkillable(pid):
        m.ask(code)
        [(_, why, _)] = m.until_final()
        assert "instance m_0 began to end (its process has not ended yet) while it executed this request" in why
        run(until(lambda: m.instance.state is InstanceState.READY))
        assert f"instance m_0 of model 'm' (pid {pid}) began to end and has not ended within 0.2 s: " in caplog.text
    run(until(lambda: f"instance m_0 of model 'm' (pid {pid}) has ended: {told}" in caplog.messages))
    assert "was killed" not in caplog.text.replace(told, "")


@pytest.mark.usefixtures("soon")
def test_a_restart_whose_end_hangs_is_followed_by_another_one(streams, run, gated):
    m = streams(f"{MODEL}    def initialize(self, args): end()\n{gated.code}")
    gated.on.touch()
    os.kill(m.instance.pid, signal.SIGKILL)
    pid = gated.pid()
    with unkillable(pid):
        gated.gate.open()
        run(until(lambda: m.instance.state is InstanceState.BROKEN))
        assert m.instance.reason == (
            "instance m_0 does not come back: the worker process of m_0 began to end (its process has not ended yet) "
            "before it could load the model"
        )
        gated.on.unlink()
        run(until(lambda: m.instance.state is InstanceState.READY))


@pytest.mark.parametrize("config", [CONFIG, 'backend: "python"'], ids=["load", "completion"])
@pytest.mark.usefixtures("soon")
def test_a_load_whose_end_hangs_fails(write, supervise, run, loop, gated, config):
    supervisor = supervise(explicit=())
    steps = "    def initialize(self, args): end()\n    def auto_complete_config(config): end()\n"
    write("m", MODEL + steps + gated.code, config)
    gated.on.touch()
    loading = loop.create_task(supervisor.lifecycle.load(LoadOrder("m")))
    with unkillable(gated.pid()):
        gated.gate.open()
        with pytest.raises(TisError, match=r"began to end \(its process has not ended yet\) before it could load"):
            run(loading)


@pytest.mark.usefixtures("soon")
def test_inputs_of_a_warm_up_that_is_given_up_are_used_again_when_its_process_has_ended(streams, run, gated):
    warms_up = MODEL.replace("exec(code,", "exec(code or 'wait(); s.send(flags=FINAL)',")
    m = streams(warms_up + gated.code, CONFIG + WARM_UP)
    gated.on.touch()
    os.kill(m.instance.pid, signal.SIGKILL)
    pid = gated.pid()
    blocks = m.runtime.arena.used_blocks
    assert blocks > 0
    with unkillable(pid):
        run(m.instance.stop(0.1))
        assert is_held(pid) and m.runtime.arena.used_blocks == blocks
    run(until(lambda: m.runtime.arena.used_blocks == 0))


def test_a_process_that_cannot_be_looked_at_is_not_taken_for_one_that_ends(streams, run, killed, monkeypatch):
    m = streams()
    looks, stat = [], os.stat

    def fails(path, *args, **options):
        if not str(path).startswith(f"/proc/{m.instance.pid}/task/"):
            return stat(path, *args, **options)
        looks.append(path)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)

    monkeypatch.setattr(os, "stat", fails)
    run(until(lambda: len(looks) >= 3))
    m.ask("s.send(answer(2), FINAL)")
    assert m.until_final() == [(0, [[2]], True)] and not killed
