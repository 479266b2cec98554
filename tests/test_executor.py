"""The event loop's executor: what it does, and that the process's end does not wait for it."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from functools import partial
from pathlib import Path

import pytest

from tests.loops import fresh_loop
from tests.waiting import until
from tisfast.errors import Unavailable
from tisfast.executor import DaemonExecutor, Lane, Overdue, Watch

ROOT = Path(__file__).parents[1]
SECONDS_MAX = 30


class Held:
    """What work is about."""


@pytest.fixture
def executor():
    made = DaemonExecutor(2)
    yield made
    made.shutdown()


@pytest.fixture
def lane():
    return Lane(2, "test-lane", "GPU 7", "Do something.")


@pytest.fixture
def uncollected():
    """Nobody waits for the collector."""
    gc.disable()
    yield
    gc.enable()


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


@pytest.mark.parametrize("which", ["executor", "lane"])
def test_what_failed_work_is_about_goes_with_its_error(request, uncollected, which):
    def fails(held):
        raise KeyError(held)

    threads, held = request.getfixturevalue(which), Held()
    seen = weakref.ref(held)
    future = threads.submit(fails, held)
    del held
    assert isinstance(future.exception(SECONDS_MAX), KeyError)
    del future
    for _ in range(2):  # whichever thread it was has let go of it
        threads.submit(tuple).result(SECONDS_MAX)
    assert seen() is None


@pytest.mark.parametrize("ends", ["in time", "late", "never begins"])
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_call_keeps_goes_on_the_loop_when_the_thread_has_let_go_of_it(lane, uncollected, ends, fails):
    begun, gate, gone, results = threading.Event(), threading.Event(), [], []

    def works():
        begun.set()
        gate.wait(SECONDS_MAX)
        if fails:
            raise KeyError
        made = Held()
        results.append(weakref.ref(made))
        return made

    async def calls():
        kept = Held()
        weakref.finalize(kept, lambda: gone.append(threading.current_thread()))
        if ends == "never begins":
            lane.post(works)
        call = asyncio.ensure_future(lane.call(works, SECONDS_MAX if ends == "in time" else 0.01, kept))
        del kept
        await asyncio.sleep(0)
        assert begun.wait(SECONDS_MAX)  # the loop, too: it looks at no time before
        if ends == "in time":
            gate.set()
        await asyncio.wait({call})
        error = call.exception()  # which somebody has from here on
        assert type(error) is told
        if ends == "late":
            assert not gone
            gate.set()
        await until(lambda: gone)
        assert gone == [threading.current_thread()]
        if ends == "late" and not fails:
            await until(lambda: results[0]() is None)  # what it came to has gone, too

    told = {"late": Overdue, "never begins": Unavailable}.get(ends, KeyError if fails else type(None))
    try:
        with fresh_loop() as loop:
            loop.run_until_complete(asyncio.wait_for(calls(), SECONDS_MAX))
    finally:
        gate.set()


class Watched:
    """Two lanes of one GPU, and what is said of them: the lane, and how many others wait.  What hangs does so until
    `open`.  whats: the work was for, said both times.

    over: the lanes that were said to have ended what hung, and after how long.
    """

    SECONDS = 0.05

    def __init__(self):
        self.said, self.over, self.whats, self.now = [], [], [], 1.0
        self.watch = Watch(
            self.SECONDS,
            lambda lane, what, others: self._tell(self.said, lane, what, others),
            lambda lane, what, seconds: self._tell(self.over, lane, what, seconds),
        )
        self.lanes = [Lane(9, "test-watched", "GPU 7", "", self.watch) for _ in range(2)]
        self.gates = []

    def _tell(self, told, lane, what, figure):
        self.whats.append(what)
        told.append((self.lanes.index(lane), figure))

    def gate(self):
        """The work of a call that hangs."""
        self.gates.append(threading.Event())
        return partial(self.gates[-1].wait, SECONDS_MAX)

    def open(self):
        while self.gates:
            self.gates.pop().set()

    def monotonic(self):
        return self.now

    async def looked(self):
        """It has looked once more, if it still does."""
        timer = self.watch._timer
        await until(lambda: timer is None or self.watch._timer is not timer)

    async def idle(self):
        await until(lambda: not any(lane.is_busy for lane in self.lanes))


@pytest.fixture
def watched():
    """watched(work): run it, which is given a Watched."""
    made = Watched()

    def run(work):
        with fresh_loop() as loop:
            loop.run_until_complete(asyncio.wait_for(work(made), SECONDS_MAX))

    yield run
    made.open()


def test_what_hangs_is_said_once_until_it_has_gone_on(watched):
    async def hangs(use):
        use.lanes[0].start(use.gate(), "region 'r'")
        use.lanes[0].submit(tuple)
        await until(lambda: use.said)
        use.lanes[1].submit(use.gate())  # the same GPU
        use.lanes[0].submit(tuple)
        for _ in range(3):
            await use.looked()
        assert use.said == [(0, 1)] and use.over == []
        use.open()
        await use.idle()
        assert [lane for lane, _ in use.over] == [0] and use.over[0][1] > use.SECONDS
        assert use.whats == ["region 'r'"] * 2
        use.lanes[1].submit(use.gate())
        await until(lambda: len(use.said) == 2)
        assert use.said[1] == (1, 0) and use.whats[2:] == [""]

    watched(hangs)


def test_one_that_hangs_is_said_when_another_one_that_was_said_has_gone_on(watched):
    async def hangs(use):
        use.lanes[0].submit(use.gate())
        await until(lambda: use.said)
        use.lanes[1].submit(use.gate())
        use.gates.pop(0).set()
        await until(lambda: len(use.said) == 2)
        assert use.said == [(0, 0), (1, 0)]
        assert [lane for lane, _ in use.over] == [0]
        use.open()
        await use.idle()
        assert [lane for lane, _ in use.over] == [0, 1]

    watched(hangs)


def test_what_ends_as_it_is_said_to_hang_is_said_to_be_over_once(watched):
    async def ends(use):
        def ended(lane, what, others):
            use.open()
            while lane.is_busy:
                pass
            use.said.append(others)

        use.watch._say = ended
        use.lanes[0].submit(use.gate())
        await until(lambda: use.over)
        assert use.said == [0] and [lane for lane, _ in use.over] == [0]

    watched(ends)


@pytest.mark.parametrize("who", ["nobody", "a request that is refused", "a client that leaves", "who unregisters"])
def test_what_nobody_waits_for_is_not_said_and_not_looked_at(watched, monkeypatch, who):
    async def hangs(use):
        def begun():
            return until(lambda: use.lanes[0].is_busy)

        monkeypatch.setattr("tisfast.executor.time", use)
        if who == "a request that is refused":
            refused = use.lanes[0].submit(use.gate())
            await until(refused.running)
            assert not refused.cancel()
        elif who == "a client that leaves":
            left = asyncio.ensure_future(use.lanes[0].call(use.gate(), SECONDS_MAX))
            await begun()
            left.cancel()
            await asyncio.wait({left})
        else:
            use.lanes[0].post(use.gate())
            await begun()
        closing = use.lanes[0].passed() if who == "who unregisters" else None  # which says so itself
        use.now += 2 * use.SECONDS
        await use.looked()
        assert use.said == [] and use.watch._timer is None
        use.lanes[0].submit(tuple)  # somebody who comes later waits for it
        await until(lambda: use.said)
        assert use.said == [(0, 1)]
        use.open()
        if closing is not None:
            await closing

    watched(hangs)


def test_what_goes_on_is_not_said_however_long_it_is_waited_for(watched, monkeypatch):
    async def goes_on(use):
        monkeypatch.setattr("tisfast.executor.time", use)
        first, second = (use.lanes[0].submit(use.gate()) for _ in range(2))
        await until(first.running)
        use.now += 0.8 * use.SECONDS
        use.gates.pop(0).set()
        await until(second.running)
        use.now += 0.8 * use.SECONDS
        await use.looked()
        assert use.said == []
        use.now += 0.8 * use.SECONDS
        await until(lambda: use.said)
        assert use.said == [(0, 0)]

    watched(goes_on)
