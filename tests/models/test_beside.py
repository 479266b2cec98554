"""Copies beside the loop: in whose thread, in which order, and what is told when a GPU takes too long."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from tests.loops import fresh_loop
from tests.waiting import until
from tisfast import limits
from tisfast.errors import Unavailable
from tisfast.executor import DaemonExecutor, Lane
from tisfast.models.beside import beside
from tisfast.types import Status

COPIES = DaemonExecutor(1, "test-copying")


@pytest.fixture
def lane():
    return Lane(2, "test-gpu", "GPU 7", "Do something.")


@pytest.fixture
def gate():
    """What a thread waits for; opened at the end in any case."""
    made = threading.Event()
    yield made
    made.set()


class Kept:
    """What a thread works on."""


def carried_out(*steps, seconds=0, then=None):
    """What `beside` tells."""
    steps = [(*step, "output 'O'") for step in steps]

    async def work():
        told = []
        beside(COPIES, steps, Kept(), told.append, seconds)
        await until(lambda: told)
        if then is not None:
            await then()
        return told

    with fresh_loop() as loop:
        return loop.run_until_complete(work())


def named(found, failure=()):
    def work():
        found.append(threading.current_thread().name)
        return failure

    return work


def test_each_step_is_done_in_its_thread_and_after_the_one_before(lane):
    found = []
    steps = [(lane, named(found)), (None, named(found)), (lane, named(found))]
    assert carried_out(*steps) == [()]
    assert found == ["test-gpu", "test-copying", "test-gpu"]


def test_nothing_follows_a_step_that_has_failed(lane):
    found = []
    assert carried_out((lane, named(found, (13, "why"))), (None, named(found))) == [(13, "why")]
    assert found == ["test-gpu"]


def test_what_is_our_fault_is_told_as_such(lane, caplog):
    def breaks():
        raise KeyError("x")

    ((status, text),) = carried_out((lane, breaks))
    assert (status, text) == (Status.INTERNAL, "unexpected KeyError in the server; see its log")
    assert "a copy beside the loop failed in what is our fault" in caplog.text


def test_who_waits_for_a_gpu_is_told_what_it_is_and_what_to_do(lane, gate, monkeypatch):
    monkeypatch.setattr(limits, "GPU_COPY_SECONDS_MAX", 0.01)
    ((status, text),) = carried_out((lane, gate.wait))
    assert status == Status.UNAVAILABLE
    said = "output 'O': GPU 7 has not made a copy within 0.01 s: it hangs, or is busy with others' work. Look whether"
    assert text.startswith(said)


def test_who_has_less_time_is_told_so_and_once(lane, gate):
    async def then():
        gate.set()
        await asyncio.get_running_loop().run_in_executor(lane, tuple)

    (text,) = carried_out((lane, gate.wait), seconds=0.01, then=then)
    assert text.startswith(
        "waited 0.01 s, which is its timeout, in front of the queue for GPU 7 to copy output 'O': it hangs, or is "
        "busy with others' work. Look whether 'nvidia-smi' answers"
    )


def test_who_has_less_time_than_a_long_copy_of_host_memory_is_told_so(gate):
    text = "waited 0.01 s, which is its timeout, in front of the queue for a long copy of host memory"
    assert carried_out((None, gate.wait), seconds=0.01) == [text]


def test_too_much_that_waits_is_refused(lane, gate):
    begun = threading.Event()
    lane.post(lambda: begun.set() or gate.wait())
    assert begun.wait(60)
    for _ in range(2):
        lane.submit(tuple)
    text = "2 calls wait for GPU 7, which is the limit: it hangs, or is busy with others' work. Do something."
    assert carried_out((lane, tuple)) == [(Status.UNAVAILABLE, f"output 'O': {text}")]
    with pytest.raises(Unavailable, match="^2 calls wait for GPU 7"):
        lane.submit(tuple)
    last = threading.Event()
    lane.post(last.set)  # what gives memory back is never refused
    gate.set()
    assert last.wait(60)


def test_long_copies_that_wait_for_a_thread_are_bounded(lane, gate, monkeypatch):
    monkeypatch.setattr(limits, "COPIES_WAITING_MAX", 1)
    copies, busy, found = DaemonExecutor(1, "test-copying"), threading.Event(), []
    copies.submit(lambda: busy.set() or gate.wait())
    assert busy.wait(60)
    first, refused, on_gpu, later = [], [], [], []

    async def work():
        beside(copies, [(None, named(found), "input 'I'")], Kept(), first.append)
        beside(copies, [(None, named(found), "output 'O'")], Kept(), refused.append)
        beside(copies, [(lane, named(found), "output 'O'")], Kept(), on_gpu.append)  # that is bounded by itself
        await until(lambda: refused and on_gpu)
        assert (first, on_gpu) == ([], [()])
        gate.set()
        await until(lambda: first)
        beside(copies, [(None, named(found), "output 'O'")], Kept(), later.append)
        await until(lambda: later)

    with fresh_loop() as loop:
        loop.run_until_complete(asyncio.wait_for(work(), 60))
    text = "output 'O': 1 long copies wait to be made, which is the limit; retry later"
    assert refused == [(Status.UNAVAILABLE, text)]
    assert (first, later) == ([()], [()])
    assert found == ["test-gpu", "test-copying", "test-copying"]


def test_a_call_that_takes_too_long_is_refused_and_its_result_dropped(lane, gate):
    async def calls():
        with pytest.raises(Unavailable, match="GPU 7 has not done a call within 0.01 s: it hangs"):
            await lane.call(gate.wait, 0.01, Kept())
        assert lane.is_busy
        gate.set()
        return await lane.call(lambda: 3, 60)

    with fresh_loop() as loop:
        assert loop.run_until_complete(calls()) == 3


@pytest.mark.parametrize("leaves", [False, True])
def test_what_has_not_begun_is_let_go_of_when_its_time_is_over_or_it_is_cancelled(lane, gate, leaves):
    begun, found = threading.Event(), []
    lane.post(lambda: begun.set() or gate.wait())
    assert begun.wait(60)

    async def work():
        told, kept = [], Kept()
        seen = weakref.ref(kept)
        order = beside(COPIES, [(lane, named(found), "x")], kept, told.append, 0 if leaves else 0.01)
        del kept
        assert seen() is not None
        if leaves:
            order.cancel()
        else:
            await until(lambda: told)
        assert seen() is None and len(told) == (0 if leaves else 1)
        for _ in range(2):  # it takes no place in the lane
            lane.submit(tuple)

    with fresh_loop() as loop:
        loop.run_until_complete(work())
    gate.set()
    ended = threading.Event()
    lane.post(ended.set)
    assert ended.wait(60) and found == []


def test_what_has_begun_keeps_its_memory_until_it_ends(lane, gate):
    begun = threading.Event()

    def slow():
        begun.set()
        gate.wait()
        return ()

    async def work():
        told, kept = [], Kept()
        seen = weakref.ref(kept)
        order = beside(COPIES, [(lane, slow, "x"), (None, tuple, "")], kept, told.append)
        del kept
        assert await asyncio.to_thread(begun.wait, 60)
        order.cancel()
        assert seen() is not None
        gate.set()
        await until(lambda: seen() is None)
        assert told == []

    with fresh_loop() as loop:
        loop.run_until_complete(work())


@pytest.mark.parametrize("which", ["lane", "copies"])
def test_what_is_cancelled_is_let_go_of_where_it_is_cancelled(lane, gate, which):
    busy = threading.Event()
    executor = lane if which == "lane" else DaemonExecutor(1, "test-copying")
    executor.submit(lambda: busy.set() or gate.wait())
    assert busy.wait(60)
    kept, names = Kept(), []
    weakref.finalize(kept, lambda: names.append(threading.current_thread().name))
    future = executor.submit(lambda kept=kept: kept)
    del kept
    assert future.cancel() and names == [threading.current_thread().name]
    assert not executor.submit(tuple).cancelled()
