"""GPU memory that the server lends: what is free goes back to the GPU, but never while somebody may have it open."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import threading
import weakref

import numpy as np
import pytest
import tritonclient.http

from tests.gpu.gpu_call_models import NODE, run
from tests.gpu.gpu_models import FLOATS, GPU, STAYS, copies
from tests.gpu.stand_in_driver import LAUNCH_FAILED, logged
from tests.loops import fresh_loop
from tests.native.helpers import HostDevice, HostMemory
from tests.system.helpers import until
from tests.waiting import until as comes_true
from tisfast.errors import Internal, Unavailable
from tisfast.native.cuda import Cuda
from tisfast.native.cuda_faces import Holder
from tisfast.native.cuda_sharing import CudaSharing
from tisfast.native.memory import Arena
from tisfast.native.region import DeviceFile
from tisfast.processes.gpu_pool import GpuPool, LentMemory

PART = 1 << 21
VALUES = np.arange(1 << 18, dtype=np.float32)


class Borrower:
    """A worker's link."""

    gpu, question, all = 0, 0, []

    def __init__(self):
        self.all.append(self)
        self.lent = self.verdict = None

    def lend(self, memory):
        self.lent = memory

    def end(self, verdict):
        self.verdict, self.lent = verdict, None

    def closed_there(self, share, refusal):
        raise AssertionError("nobody says so")

    async def borrows(self, pool, uuid, number=1):
        told = []
        pool.answer({"n": number, "uuid": uuid}, self, told.append, "m_0")
        await comes_true(lambda: told)
        return told[0]


class Allocating:
    """What allocates, what it has allocated last, while that is not freed, and how often it was asked where."""

    def __init__(self, cuda):
        self._cuda, self.asked, self.waits = cuda, 0, False

    def __getattr__(self, name):
        return getattr(self._cuda, name)

    def lane(self, device):
        self.asked += 1
        return self._cuda.lane(device)

    async def ready(self, device, seconds):
        self.waits = True
        await self._cuda.ready(device, seconds)
        self.waits = False

    def allocate(self, device, nbytes):
        made = self._cuda.allocate(device, nbytes)
        self.last = weakref.ref(made)
        return made


async def others_end(*own):
    """What the pool has begun."""
    while others := asyncio.all_tasks() - {asyncio.current_task(), *own}:
        await asyncio.wait(others)




@pytest.fixture
def lending(stand_in):
    """lending(work): runs the coroutine work(pool, uuid, allocating) with a pool of four parts that is idle at once.

    When its borrowers have ended, the pool gives everything back.
    """

    def start(work):
        before = stand_in.allocated()
        with fresh_loop() as loop:
            asyncio.set_event_loop(loop)
            cuda = Cuda(str(stand_in.library))
            allocating = Allocating(cuda)
            pool = GpuPool(loop, lambda: allocating, {0: 4 * PART}, CudaSharing(), idle_seconds=0)
            loop.run_until_complete(work(pool, cuda.uuid_of(0), allocating))
            loop.run_until_complete(others_end())
            for each in Borrower.all:
                each.end("")
            Borrower.all.clear()
            gc.collect()  # what cycles hold
            # Less, where a test before this one has failed, which keeps what it had.
            loop.run_until_complete(comes_true(lambda: stand_in.allocated() <= before))

    return start


def test_a_part_that_nobody_has_is_freed(lending, stand_in):
    async def work(pool, uuid, _):
        before = stand_in.allocated()
        borrowers = [Borrower() for _ in range(5)]
        told = [await borrower.borrows(pool, uuid) for borrower in borrowers]
        assert ["error" in each for each in told] == [False] * 4 + [True]
        assert stand_in.allocated() - before == 4 * PART
        for borrower in borrowers[:3]:
            borrower.lent = None
        await comes_true(lambda: stand_in.allocated() - before == PART)
        assert [("error" in await borrower.borrows(pool, uuid)) for borrower in borrowers[1:]] == [False] * 4
        for borrower in borrowers:
            borrower.lent = None
        await comes_true(lambda: stand_in.allocated() == before)

    lending(work)


def test_what_is_lent_is_counted(lending):
    async def work(pool, uuid, allocating):
        assert pool.lent() == []
        one, other = Borrower(), Borrower()
        await one.borrows(pool, uuid)
        await other.borrows(pool, uuid)
        assert pool.lent() == [LentMemory(0, 2, 0, PART)]
        allocating.last().holders["somebody"] = Holder("somebody", others_end)
        one.lent = other.lent = None
        await comes_true(lambda: pool.lent() == [LentMemory(0, 0, 1, PART)])
        allocating.last().holders.clear()

    lending(work)


def test_a_part_that_somebody_may_have_open_is_lent_again_but_not_freed(lending, stand_in):
    async def work(pool, uuid, allocating):
        before, one, other = stand_in.allocated(), Borrower(), Borrower()
        handle = (await one.borrows(pool, uuid))["handle"]
        holders = allocating.last().holders
        holders["somebody"] = Holder("somebody", others_end)
        await other.borrows(pool, uuid)
        one.lent = other.lent = None
        await comes_true(lambda: stand_in.allocated() - before == PART)  # of the other one
        assert (await one.borrows(pool, uuid))["handle"] == handle
        one.lent = None
        holders.clear()
        await comes_true(lambda: stand_in.allocated() == before)

    lending(work)


def test_a_part_that_is_there_is_lent_while_another_one_cannot_be_allocated(lending, stand_in):
    async def work(pool, uuid, allocating):
        one, other = Borrower(), Borrower()
        handle = (await one.borrows(pool, uuid))["handle"]
        holders = allocating.last().holders
        holders["somebody"] = Holder("somebody", others_end)  # so that it stays there
        with stand_in.hanging("cuMemAlloc_v2") as begun:
            waiting = asyncio.ensure_future(other.borrows(pool, uuid))
            await comes_true(begun)
            one.lent = None
            assert (await one.borrows(pool, uuid))["handle"] == handle
            assert not waiting.done()
        assert "error" not in await waiting
        holders.clear()

    lending(work)


def test_all_that_need_a_new_part_wait_for_the_gpu_and_not_for_each_other(lending, stand_in):
    async def work(pool, uuid, allocating):
        borrowers = [Borrower() for _ in range(5)]
        with stand_in.hanging("cuMemAlloc_v2"):
            asked = [asyncio.ensure_future(borrower.borrows(pool, uuid)) for borrower in borrowers]
            await asyncio.wait_for(comes_true(lambda: allocating.asked == 4), 30)
            await comes_true(asked[4].done)  # there are no more than four
            assert "in use by 4 instances" in asked[4].result()["error"]
            assert not any(each.done() for each in asked[:4])
        assert ["error" in await each for each in asked[:4]] == [False] * 4

    lending(work)


def test_what_could_not_be_allocated_in_time_is_no_part_that_is_out(lending, stand_in, monkeypatch):
    async def work(pool, uuid, _):
        borrowers = [Borrower() for _ in range(4)]
        with stand_in.hanging("cuMemAlloc_v2"), monkeypatch.context() as short:
            short.setattr("tisfast.limits.GPU_LENDING_SECONDS_MAX", 1)
            told = await asyncio.gather(*(borrower.borrows(pool, uuid) for borrower in borrowers))
        assert ["has not done a call within 1 s" in each["error"] for each in told] == [True] * 4
        assert ["error" in await borrower.borrows(pool, uuid) for borrower in borrowers] == [False] * 4

    lending(work)


def test_what_nobody_waits_for_any_more_is_not_lent(lending, stand_in):
    """A worker that gave up asks again: what comes of the first question must not replace what it has by then."""

    async def work(pool, uuid, _):
        before, one = stand_in.allocated(), Borrower()
        with stand_in.hanging("cuMemAlloc_v2") as begun:
            first = asyncio.ensure_future(one.borrows(pool, uuid))
            await comes_true(begun)
            pool.forgone({"forgone": 1}, one)
        await others_end(first)
        assert (first.done(), one.lent) == (False, None)
        await comes_true(lambda: stand_in.allocated() == before)
        first.cancel()
        assert "error" not in await one.borrows(pool, uuid, number=2)
        had = one.lent
        pool.forgone({"forgone": 1}, one)
        assert one.lent is had
        pool.forgone({"forgone": 2}, one)  # its answer was under way
        assert one.lent is None

    lending(work)


def test_who_asks_again_before_it_is_answered_is_lent_one_part(lending, stand_in):
    async def work(pool, uuid, _):
        one = Borrower()
        with stand_in.hanging("cuMemAlloc_v2") as begun:
            asked = [asyncio.ensure_future(one.borrows(pool, uuid, number=number)) for number in (1, 2)]
            await comes_true(begun)
        await asked[1]
        await others_end(*asked)
        assert pool.lent()[0].lent == 1
        asked[0].cancel()

    lending(work)


def test_an_answer_comes_before_the_worker_gives_up(lending, stand_in, monkeypatch):
    monkeypatch.setattr("tisfast.limits.GPU_LENDING_SECONDS_MAX", 0.1)

    async def work(pool, uuid, _):
        with stand_in.hanging("cuMemAlloc_v2"):  # whatever of it hangs
            assert f"{logged(0)} has not done a call within 0.1 s" in (await Borrower().borrows(pool, uuid))["error"]

    lending(work)


def lose(allocating, stand_in):
    """The server loses the GPU of the last part that was allocated."""

    def copy():
        with pytest.raises(Internal):
            allocating.last().from_device(0, allocating.last(), 0, 64)

    stand_in.fail("cuMemcpyDtoDAsync_v2", LAUNCH_FAILED, times=1)
    copy()
    gc.collect()  # the frames of its error hold the part


def test_who_may_have_a_part_of_a_gpu_that_is_lost_ends_before_that_is_begun_anew(lending, stand_in):
    async def work(pool, uuid, allocating):
        before, one, other, ended = stand_in.allocated(), Borrower(), Borrower(), []
        handle = (await one.borrows(pool, uuid))["handle"]
        kept = allocating.last()  # as a worker's table does that was shown it
        kept.holders["somebody"] = Holder("somebody", ended.append)
        await other.borrows(pool, uuid)
        other.lent = None  # this part is free
        lose(allocating, stand_in)
        await comes_true(lambda: ended)
        assert ended == [one.verdict] == ["was ended: the server has lost its GPU, and had lent it memory there"]
        assert pool.lent() == [LentMemory(0, 0, 0, PART)]
        waiting = asyncio.ensure_future(other.borrows(pool, uuid))
        await comes_true(lambda: allocating.waits)
        assert stand_in.allocated() - before >= PART and not waiting.done()
        del kept
        assert (await waiting)["handle"] != handle
        assert pool.lent() == [LentMemory(0, 1, 0, PART)]
        other.lent = None
        await comes_true(lambda: stand_in.allocated() <= before)  # what other tests left has gone with the context

    lending(work)


def test_a_gpu_that_is_lost_and_in_use_for_too_long_is_told(lending, stand_in, monkeypatch):
    async def work(pool, uuid, allocating):
        one = Borrower()
        await one.borrows(pool, uuid)
        kept = allocating.last()
        lose(allocating, stand_in)
        with monkeypatch.context() as short:
            short.setattr("tisfast.limits.GPU_LOST_SECONDS_MAX", 0.1)
            text = r"has lost GPU 0 .* in an earlier call \(.*launch failure\), and 1 part of memory that it lent there"
            assert re.search(text, (await one.borrows(pool, uuid))["error"])
        with pytest.raises(Unavailable, match=text):
            allocating.open(kept.handle, 0)
        del kept
        assert "error" not in await one.borrows(pool, uuid)

    lending(work)


@pytest.mark.parametrize("number", ["x", -1, None, 1 << 60])
def test_a_message_without_a_number_is_passed_over(lending, caplog, number):
    async def work(pool, uuid, _):
        pool.unopened({"unopened": number, "error": "why"}, Borrower(), "m_0")
        pool.copy({"n": number, "copy": 0, "offset": 0, "bytes": 1}, Borrower(), None, "m_0")
        pool.answer({"n": number, "uuid": uuid}, Borrower(), None, "m_0")
        assert "error" not in await Borrower().borrows(pool, uuid)

    lending(work)
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        f"a message about GPU memory has {number!r} as {key!r}: it is passed over" for key in ("unopened", "n", "n")
    ]


class Refusing(HostMemory):
    """It waits for `gate`, and then refuses to be copied; `refused` is the error, which somebody has."""

    def __init__(self):
        super().__init__(HostDevice(), bytearray(64))
        self.begun, self.gate, self.refused = threading.Event(), threading.Event(), None

    def to_host(self, offset, address, nbytes):
        self.begun.set()
        self.gate.wait()
        self.refused = Internal("no")
        raise self.refused


class Reading(Borrower):
    """One that reads memory of another one, by way of the host, and takes no copy."""

    def __init__(self, memory, arena):
        super().__init__()
        self._given, self.over = [arena.take_block(64), DeviceFile(memory, 0, bytes(64))], False

    def copying(self, number, share, nbytes):
        return self._given.pop(), self._given.pop()

    def copied(self, number):
        self.over = True


def test_a_copy_that_fails_late_is_let_go_of_by_the_loop_whoever_has_its_error(monkeypatch):
    memory, arena, gone, told = Refusing(), Arena("t", 1 << 20, 1 << 19), [], []
    borrower = Reading(memory, arena)
    weakref.finalize(borrower._given[1], lambda: gone.append(threading.current_thread()))

    async def work():
        pool = GpuPool(asyncio.get_running_loop(), None, {}, CudaSharing())
        pool.copy({"n": 1, "copy": 7, "offset": 0, "bytes": 64}, borrower, told.append, "m_0")
        await asyncio.sleep(0)
        assert memory.begun.wait(60)  # the loop, too: it looks at no time before
        await comes_true(lambda: told)
        assert "has not done a call within 0.01 s" in told[0]["error"]
        assert borrower.over and arena.used_blocks == 1 and not gone
        memory.gate.set()
        await comes_true(lambda: gone)
        assert memory.refused and arena.used_blocks == 0
        assert gone == [threading.current_thread()]

    monkeypatch.setattr("tisfast.limits.GPU_COPY_SECONDS_MAX", 0.01)
    gc.disable()  # nobody waits for the collector
    try:
        with fresh_loop() as loop:
            loop.run_until_complete(asyncio.wait_for(work(), 60))
    finally:
        gc.enable()
        memory.gate.set()


@pytest.mark.parametrize("dies", [False, True])
def test_a_server_gives_back_what_idle_models_do_not_use(gpu, serve, write_model, connect, dies):
    for name in ("caller", "other"):
        write_model(name, NODE, FLOATS + GPU + STAYS)
    server = serve().ready()
    client = connect(server, tritonclient.http)
    before = gpu.allocated()
    steps = ["made", 1], ["call", "other", [["is_cpu", False], ["made", 1]]], ["is_cpu", False]
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 2).tolist()
    if dies:
        worker = server.worker("other_0_0")
        os.kill(worker, signal.SIGKILL)
        until(lambda: server.worker("other_0_0") != worker and client.is_model_ready("other"), "it is back")
    until(lambda: gpu.allocated() == before, "all has been given back")
    counted = gpu.counted()
    assert run(client, "caller", VALUES, *steps).tolist() == (VALUES + 2).tolist()
    assert copies(gpu, counted) == [2, 2, 2]  # on the GPU, as before
    assert 'tisfast_gpu_lent_parts{gpu="0",state="lent"} 2' in server.metrics()
    assert gpu.counted()["used_after_free"] == 0
