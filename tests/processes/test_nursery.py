import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
import tempfile
from dataclasses import replace

import pytest

from tests.model_fixtures import descriptors, descriptors_are
from tests.waiting import until
from tisfast.processes.control_directory import ControlDirectory
from tisfast.processes.control_socket import ControlSocket
from tisfast.processes.nursery import Child, ForkOrder, Nursery, NurseryFailed
from tisfast.processes.nursery_process import spawn_nursery

TOKEN = b"t" * 16


@pytest.fixture
def control(loop, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    directory = ControlDirectory()
    made = ControlSocket(directory, loop)
    made.open()
    yield made
    made.close()
    directory.remove()


@pytest.fixture
def nursery(loop):
    made = Nursery(sys.executable, loop)
    yield made
    made.close()


@pytest.fixture
def script(tmp_path):
    """An executable that runs a line of shell in place of Python."""

    def write(line: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        return str(path)

    return write


def order(control: ControlSocket, name: str = "w") -> ForkOrder:
    return ForkOrder(name, control.endpoint, TOKEN, {"GREETING": "hello"}, 1)


@pytest.fixture
def fds():
    """Nine descriptors that a child may have; it waits for its load message before it looks at them."""
    opened = [os.open("/dev/null", os.O_RDWR) for _ in range(9)]
    yield opened
    for fd in opened:
        os.close(fd)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_nursery_says_what_it_is(nursery, run):
    facts = run(nursery.up())
    assert facts.python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert facts.numpy
    assert facts.pid == nursery.pid


def test_a_process_started_early_is_adopted(loop, run):
    spawned = spawn_nursery(sys.executable)
    nursery = Nursery(sys.executable, loop, spawned)
    assert run(nursery.up()).pid == spawned.process.pid
    nursery.close()
    assert spawned.process.poll() is not None


def test_a_sigterm_as_it_starts_is_the_servers_affair(nursery, run):
    async def scenario():
        up = asyncio.get_running_loop().create_task(nursery.up())
        await until(lambda: nursery.pid)
        os.kill(nursery.pid, signal.SIGTERM)
        return (await up).pid

    assert run(scenario()) == nursery.pid


def test_a_child_says_hello_and_its_end_is_told(nursery, control, fds, run):
    heard: list[dict] = []
    ends: list[int | None] = []
    control.expect("w", TOKEN, heard.append)
    child = run(nursery.fork(order(control), fds, ends.append))
    run(until(lambda: heard))
    assert heard[0]["pid"] == child.pid
    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
    os.close(child.pidfd)
    run(until(lambda: ends))
    assert os.WTERMSIG(ends[0]) == signal.SIGKILL


def test_many_forks_at_once(nursery, control, fds, run):
    ends: list[int | None] = []

    async def scenario() -> list[Child]:
        orders = [order(control, f"w{i}") for i in range(20)]
        return await asyncio.gather(*(nursery.fork(each, fds, ends.append) for each in orders))

    children = run(scenario())
    assert len({child.pid for child in children}) == 20
    for child in children:
        signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        os.close(child.pidfd)
    run(until(lambda: len(ends) == 20))


def test_a_nursery_s_death_is_its_children_s_and_the_next_fork_starts_another(nursery, control, fds, run):
    ends: list[int | None] = []
    child = run(nursery.fork(order(control), fds, ends.append))
    first = nursery.pid
    os.kill(first, signal.SIGKILL)
    run(until(lambda: ends))
    assert ends == [None]
    run(until(lambda: not alive(child.pid)))
    os.close(child.pidfd)
    second = run(nursery.fork(order(control), fds, ends.append))
    assert nursery.pid not in (None, first)
    os.close(second.pidfd)


def test_closing_ends_the_children(loop, control, fds, run):
    nursery = Nursery(sys.executable, loop)
    ends: list[int | None] = []
    child = run(nursery.fork(order(control), fds, ends.append))
    nursery.close()
    run(until(lambda: not alive(child.pid)))
    os.close(child.pidfd)
    assert ends == [None]


def test_an_interpreter_that_is_none_is_told(loop, run, tmp_path):
    with pytest.raises(NurseryFailed, match="cannot execute .*No such file.*EXECUTION_ENV_PATH"):
        run(Nursery(str(tmp_path / "nowhere"), loop).up())


def test_what_a_broken_interpreter_prints_is_told(loop, run, script):
    nursery = Nursery(script("echo 'cannot find libpython' >&2; exit 1"), loop)
    with pytest.raises(NurseryFailed, match="could not start the worker runtime; it printed: cannot find libpython"):
        run(nursery.up())
    nursery.close()


def test_a_refused_fork_is_told(nursery, control, fds, run):
    with pytest.raises(NurseryFailed, match="could not fork a worker: .*needs 9 descriptors, got 6"):
        run(nursery.fork(order(control), fds[:6], lambda _: None))


def test_forks_leave_no_descriptors(nursery, control, fds, run):
    async def one() -> None:
        ends: list[int | None] = []
        child = await nursery.fork(order(control), fds, ends.append)
        signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        os.close(child.pidfd)
        await until(lambda: ends)

    run(one())
    gc.collect()  # what earlier tests left to it must not go while we count
    before = run(descriptors())
    for _ in range(20):
        run(one())
    run(descriptors_are(before))


def test_a_fork_that_is_cancelled_as_its_child_is_announced_leaves_nothing(run, nursery, control, fds):
    async def scenario():
        await nursery.up()
        before = await descriptors()
        task = asyncio.ensure_future(nursery.fork(order(control), fds, lambda _: None))
        handle = nursery._handle  # the announcement and the cancellation, in one turn of the loop

        def announced(life, message, passed):
            handle(life, message, passed)
            if message["t"] == "forked":
                task.cancel()

        nursery._handle = announced
        with pytest.raises(asyncio.CancelledError):
            await task
        await descriptors_are(before)  # the child may have said hello

    run(scenario())


def test_a_nursery_that_does_not_answer_a_fork_is_ended(run, nursery, control, fds, monkeypatch):
    async def scenario():
        await nursery.up()
        monkeypatch.setattr("tisfast.limits.NURSERY_START_SECONDS_MAX", 0.05)
        os.kill(nursery.pid, signal.SIGSTOP)
        with pytest.raises(NurseryFailed, match="the nursery ended"):
            await nursery.fork(order(control), fds, lambda _: None)
        assert nursery.pid is None

    run(scenario())


def test_a_nursery_that_somebody_stopped_is_replaced_long_before_that(run, nursery, control, fds, caplog):
    async def scenario():
        await nursery.up()
        os.kill(nursery.pid, signal.SIGSTOP)
        with pytest.raises(NurseryFailed, match="the nursery ended"):
            await nursery.fork(order(control), fds, lambda _: None)
        assert "was stopped by a signal; it is replaced, with its workers" in caplog.text
        child = await nursery.fork(order(control), fds, lambda _: None)
        child.dismiss()

    run(scenario())


@contextlib.contextmanager
def no_descriptor_left():
    """This process has as many as it may have."""
    limit, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limit[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


def test_a_worker_for_which_no_descriptor_is_left_is_ended_and_the_others_live(nursery, control, run, fds):
    async def scenario():
        await nursery.up()
        pid = nursery.pid
        # It speaks to nobody: ZeroMQ ends the process where it finds no descriptor for who comes.
        silent = replace(order(control), endpoint="ipc:///nowhere/control")
        forking = asyncio.ensure_future(nursery.fork(silent, fds, [].append))
        while not nursery._life.forks:  # then the order is on its way, and its answer is some milliseconds off
            await asyncio.sleep(0)
        with no_descriptor_left(), pytest.raises(NurseryFailed, match="no descriptor left"):
            await forking
        child = await nursery.fork(order(control, "w2"), fds, [].append)
        assert nursery.pid == pid and alive(child.pid)

    run(scenario())
