"""The event loop's executor: what it does, and that the process's end does not wait for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.loops import fresh_loop
from tisfast.executor import DaemonExecutor

ROOT = Path(__file__).parents[1]
SECONDS_MAX = 30


@pytest.fixture
def executor():
    made = DaemonExecutor(2)
    yield made
    made.shutdown()


def test_work_is_answered_with_what_it_returns_or_raises(executor):
    assert executor.submit(divmod, 7, 2).result(SECONDS_MAX) == (3, 1)
    assert executor.submit(int, "11", base=2).result(SECONDS_MAX) == 3
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result(SECONDS_MAX)


def test_an_idle_thread_is_used_again_and_no_more_than_most_are_started(executor):
    gate = threading.Event()

    def who() -> threading.Thread:
        assert gate.wait(SECONDS_MAX)
        return threading.current_thread()

    busy = [executor.submit(who) for _ in range(5)]
    gate.set()
    first = {future.result(SECONDS_MAX) for future in busy}
    later = {executor.submit(who).result(SECONDS_MAX) for _ in range(5)}
    assert len(first) <= 2 and later <= first


def test_one_that_hangs_holds_up_no_other(executor):
    gate = threading.Event()
    hanging = executor.submit(gate.wait, SECONDS_MAX)
    assert executor.submit(len, "abc").result(SECONDS_MAX) == 3 and not hanging.done()
    gate.set()
    assert hanging.result(SECONDS_MAX)


def test_what_is_cancelled_before_its_turn_is_not_done(executor):
    gate, done = threading.Event(), threading.Event()
    for _ in range(2):
        executor.submit(gate.wait, SECONDS_MAX)
    waiting = executor.submit(done.set)
    assert waiting.cancel()
    gate.set()
    assert executor.submit(done.is_set).result(SECONDS_MAX) is False


def test_threads_end_after_the_work_that_was_submitted():
    executor = DaemonExecutor(1)
    thread, last = executor.submit(threading.current_thread), executor.submit(len, "abc")
    executor.shutdown()
    assert last.result(SECONDS_MAX) == 3
    thread.result().join(SECONDS_MAX)
    assert not thread.result().is_alive()


def test_it_serves_a_loop():
    with fresh_loop() as loop:
        loop.set_default_executor(DaemonExecutor(2))
        assert loop.run_until_complete(asyncio.to_thread(len, "abc")) == 3


def test_a_process_ends_while_work_hangs():
    code = (
        "import os; from tisfast.executor import DaemonExecutor\n"
        "began, tell = os.pipe(); hangs, _ = os.pipe()\n"
        "DaemonExecutor(1).submit(lambda: (os.write(tell, b'x'), os.read(hangs, 1)))\n"
        "os.read(began, 1)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=SECONDS_MAX, check=False).returncode == 0
