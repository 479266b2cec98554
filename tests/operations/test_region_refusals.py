"""Clients' GPU memory that a driver does not close: who unregisters the region is told so."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time

import pytest

from tests.native.helpers import LANE, ShmFile
from tests.operations.helpers import BY_NAME, registered
from tests.waiting import until as comes_true
from tisfast import tuning
from tisfast.errors import Internal, TisError, Unavailable
from tisfast.native.cuda_faces import By, Refusal
from tisfast.native.cuda_lanes import HANGS
from tisfast.operations import region_closings
from tisfast.operations.memory_closing import Closer

UNCLOSED = (
    "unregistered, but not closed: the driver refuses that in {}. Do not free the memory before the server has ended"
)
NO = Refusal(By.SERVER, "the server", "no")
INSTANCE = Refusal(By.INSTANCE, "instance m_0_0 of model 'm' (pid 7)", "no")
OTHER = Refusal(By.INSTANCE, "instance m_0_1 of model 'm' (pid 8)", "no")
LEFT = Refusal(By.LINGERING, "instance m_0_2 of model 'm' (pid 9), which was killed and has not ended", "no")


@pytest.fixture
def register(regions, device):
    """Register a region: what is told when it is to be closed may be said in the dictionary that this gives."""

    async def register(name):
        await regions.register_cuda(name, device.handle("a"), 0, 10)
        return regions.table.get(name).file.memory.unclosed

    return register


@pytest.mark.parametrize("name", ["c", ""])
def test_who_unregisters_is_told_that_the_driver_does_not_close_it(regions, register, name):
    async def refused():
        for each in "cd":
            (await register(each))["who"] = Refusal(By.SERVER, "the server", f"cuIpcCloseMemHandle: {each}")
        answers = [regions.unregister_cuda(name) for _ in range(2)]  # both wait for it
        assert [each["name"] for each in regions.cuda_status("")] == (["d"] if name else [])
        await asyncio.wait(answers)
        where = "the server (cuIpcCloseMemHandle: c)" + ("" if name else ", in the server (cuIpcCloseMemHandle: d)")
        for each in answers:
            assert str(each.exception()) == f"shared memory {which} {UNCLOSED.format(where)}{more}"
            assert isinstance(each.exception(), Internal)
        with pytest.raises(Internal, match=f"^shared memory {which} unregistered"):  # who asked may have left
            await regions.unregister_cuda(name)
        for each in "cd" if not name else "c":
            await register(each)  # it is other memory, of which nobody was told
        await regions.unregister_cuda(name)

    which, more = ("region 'c'", "") if name else ("regions 'c' and 'd'", BY_NAME)
    registered(refused)


THIS = (
    "Do not free the memory before this process has ended: end that process by its pid with 'kill -9' (the server "
    "then starts the instance again), unload its model (only with --model-control-mode=explicit), or end the server"
)
PROCESSES = "the processes of the instances"
BY_PID = "that process by its pid with 'kill -9'"
THESE = (
    "Do not free the memory before these processes have ended: end {} (the server then starts {} again), "
    "unload {} (only with --model-control-mode=explicit), or end the server"
)
STAYS = f"what was killed and has not ended does not end by an unload, nor with the server. {HANGS}"


@pytest.mark.parametrize(
    ("who", "remedy"),
    [
        ([NO], "Do not free the memory before the server has ended"),
        ([INSTANCE], THIS),
        ([INSTANCE, OTHER], THESE.format(f"{PROCESSES} by their pids with 'kill -9'", "the instances", "their models")),
        ([NO, INSTANCE], "Do not free the memory before the server has ended"),
        ([LEFT], f"Do not free the memory before this process has ended: {STAYS}"),
        ([INSTANCE, LEFT], f"{THESE.format(BY_PID, 'the instance', 'its model')}; {STAYS}"),
        ([NO, LEFT], f"Do not free the memory before the server and what was killed have ended: {STAYS}"),
    ],
)
def test_the_remedy_is_of_the_processes_that_have_it_open(regions, register, who, remedy):
    async def refused():
        (await register("c")).update({each.who: each for each in who})
        with pytest.raises(Internal) as told:
            await regions.unregister_cuda("c")
        where = ", in ".join(f"{each.who} (no)" for each in sorted(who, key=lambda one: one.who))
        assert str(told.value).partition("the driver refuses that in ")[2] == f"{where}. {remedy}"

    registered(refused)


def test_many_refusals_are_told_in_few_words_and_let_others_have_their_turn(regions, register, monkeypatch):
    async def refused():
        for each in range(40):
            refusal = Refusal(By.INSTANCE, f"instance m_{each:02}_0", "cuIpcCloseMemHandle: 1")
            (await register(f"r{each}"))["who"] = refusal
        await asyncio.wait({regions.unregister_cuda("")})
        told, turns = regions.unregister_cuda(""), 0  # all is done but the answer
        while not told.done():
            turns += 1
            await asyncio.sleep(0)
        shown = ", in ".join(f"instance m_{each:02}_0 (cuIpcCloseMemHandle: 1)" for each in range(8))
        assert f"refuses that in {shown} and 32 others. Do not free the memory" in str(told.exception())
        assert turns >= 40 // tuning.LOOP_SLICE_PIECES

    monkeypatch.setattr("tisfast.tuning.LOOP_SLICE_SECONDS", 0)
    registered(refused)


@pytest.mark.parametrize("asks", ["registers", "unregisters"])
def test_who_asks_in_the_moment_when_the_end_is_told_is_told_of_it(regions, device, busy, monkeypatch, asks):
    """Its call has not begun yet."""
    monkeypatch.setattr("tisfast.limits.GPU_REGION_END_SECONDS", 0)

    async def ends():
        if asks == "registers":
            told, text = regions.register_cuda("c", device.handle("a"), 0, 10), "region 'c': the server ends"
        else:
            await regions.register_cuda("c", device.handle("a"), 0, 10)
            busy()
            told, text = regions.unregister_cuda("c"), "free the memory when it has ended"
        regions._tell_end()
        with pytest.raises(Unavailable, match=text):
            await told
        busy.over.set()
        await comes_true(lambda: regions.unfinished() == [])

    registered(ends)


def test_refusals_are_told_also_where_the_server_ends_between_two_turns(regions, register, monkeypatch):
    monkeypatch.setattr("tisfast.limits.GPU_REGION_END_SECONDS", 0)

    async def ends():
        for each in range(40):
            (await register(f"r{each}"))["who"] = NO
        await asyncio.wait({regions.unregister_cuda("")})
        told = regions.unregister_cuda("")
        await asyncio.sleep(0)
        regions.end()
        await asyncio.sleep(0)
        assert not told.done()
        with pytest.raises(Internal, match="the driver refuses that in the server"):
            await told

    registered(ends)


REFUSED = (
    "Besides, shared memory region 'c' unregistered, but not closed: the driver refuses that in instance m_0_0 of "
    "model 'm' (pid 7) (no). Do not free the memory before this process has ended: end that process by its pid"
)


@pytest.mark.parametrize("when", ["late", "end"])
def test_a_refusal_is_told_also_while_another_region_is_not_closed(regions, register, monkeypatch, when):
    """Its client would take it for closed, as the answer names only the other one."""

    async def both():
        (await register("c"))["who"] = INSTANCE
        await register("d")
        kept = regions.table.get("d").file
        monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1 if when == "late" else 60)
        monkeypatch.setattr("tisfast.limits.GPU_TOLD_SECONDS", 0.05)
        told = regions.unregister_cuda("")
        await comes_true(lambda: [each for each in regions.unfinished() if "'c'" in each] == [])
        if when == "end":
            regions._tell_end()
        with pytest.raises(Unavailable) as error:
            await told
        del kept
        await comes_true(lambda: not regions.unfinished())
        return str(error.value)

    late = "closed within 0.1 s; do not free" if when == "late" else "closed before the server ends: free the memory"
    text = registered(both)
    assert text.startswith(f"shared memory region 'd' unregistered, but not {late}")
    assert REFUSED in text and text.endswith(BY_NAME)


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_what_nobody_can_say_whether_it_is_closed_is_not_told_to_be(regions, register, monkeypatch, failing):
    """Whichever of those that one call unregisters."""
    closed, calls = Closer.closed, itertools.count(1)

    def fails(self, left):
        if next(calls) == failing:
            left.clear()
            raise MemoryError("no memory")
        return closed(self, left)

    async def all_of_them():
        for each in "cde":
            await register(each)
        monkeypatch.setattr(Closer, "closed", fails)
        for _ in range(2):
            where = f"region '{'cde'[failing - 1]}' unregistered, but not closed: .*no memory"
            with pytest.raises(Internal, match=where):
                await regions.unregister_cuda("")
        assert regions.unfinished() == []
        await register("f")
        await regions.unregister_cuda("f")

    registered(all_of_them)


def test_what_nobody_can_say_whether_it_is_closed_is_not_told_to_be_where_it_alone_is_unregistered(
    regions, register, monkeypatch, device
):
    def fails(self, left):
        region = left[0]
        assert region.name == "c"
        try:
            raise ValueError
        except ValueError:
            raise MemoryError("no memory")  # noqa: B904 - the error before it has frames, too

    async def by_name():
        await register("c")
        monkeypatch.setattr(Closer, "closed", fails)
        monkeypatch.setattr(region_closings.log, "error", lambda *_, exc_info: None)  # pytest keeps what is logged
        for name in ("c", "c", ""):
            with pytest.raises(Internal) as told:
                await regions.unregister_cuda(name)
            assert told.value.message.startswith(
                "shared memory region 'c' unregistered, but not closed: the server has failed to close it "
                "(MemoryError('no memory')): see its log. Do not free the memory before the server has ended"
            )
        gc.collect()
        assert device.open_count == 0  # the error does not keep it

    registered(by_name)


def test_of_different_failures_of_the_server_the_first_is_told_and_how_many_others(regions, register, monkeypatch):
    errors = iter((MemoryError("no memory"), ValueError("odd"), TypeError("odd")))

    def fails(self, left):
        raise next(errors)

    async def all_of_them():
        for each in "cde":
            await register(each)
        monkeypatch.setattr(Closer, "closed", fails)
        with pytest.raises(Internal, match=r"has failed to close it \(\w+\('.*'\) and 2 others\): see its log"):
            await regions.unregister_cuda("")

    registered(all_of_them)


def test_what_is_closed_or_unknown_is_not_unfinished(regions, register, monkeypatch):
    """Also in the turn of the loop in which that is found."""

    def fails(self, left):
        raise MemoryError("no memory")

    async def at_the_end():
        for each in "cd":
            await register(each)
        monkeypatch.setattr(Closer, "closed", fails)
        told = regions.unregister_cuda("")
        assert regions.unfinished() == []
        with pytest.raises(Internal, match="regions 'c' and 'd' unregistered, but not closed: .*no memory"):
            await told

    registered(at_the_end)


def test_who_waits_already_is_told_of_a_refusal_also_where_the_name_is_used_again(regions, register):
    """It may be its memory, as far as the server knows."""

    async def again():
        (await register("c"))["who"] = INSTANCE
        await register("d")
        kept = regions.table.get("d").file
        waits = regions.unregister_cuda("")
        with pytest.raises(Internal, match="'c' unregistered, but not closed"):
            await regions.unregister_cuda("c")
        await register("c")
        await regions.unregister_cuda("c")
        later = regions.unregister_cuda("")
        assert not waits.done()
        del kept
        with pytest.raises(Internal, match="^shared memory region 'c' unregistered, but not closed: the driver"):
            await waits
        await later
        await regions.unregister_cuda("")
        assert len(regions._closings) == len(regions._closings._told) == 0

    registered(again)


@pytest.mark.parametrize("again", [False, True])
def test_a_refusal_that_nobody_has_waited_for_is_told_to_the_next_one(regions, register, busy, again):
    async def late():
        (await register("c"))["who"] = INSTANCE
        busy()
        left = regions.unregister_cuda("c")
        left.cancel()
        busy.over.set()
        await comes_true(lambda: not regions.unfinished())
        if again:
            await register("c")
        await regions.unregister_cuda("x")
        with pytest.raises(Internal, match="'c' unregistered, but not closed: the driver refuses that in instance"):
            await regions.unregister_cuda("c")

    registered(late)


def test_a_refusal_is_told_to_who_asks_again(regions, register, busy):
    """A client whose time was over has left, and its answer with it."""

    async def asks_again():
        (await register("c"))["who"] = NO
        busy()
        left = regions.unregister_cuda("c")
        busy.over.set()
        await asyncio.wait({left})  # nobody reads what it says
        with pytest.raises(Internal, match="the driver refuses that in the server .no.. Do not free the memory"):
            await regions.unregister_cuda("c")
        left.exception()

    registered(asks_again)


def test_a_refusal_is_told_as_long_as_it_holds(regions, register):
    """The process may end, or its context go, and the memory with it."""

    async def holds():
        unclosed = await register("c")
        unclosed["who"] = INSTANCE
        for _ in range(2):
            with pytest.raises(Internal):
                await regions.unregister_cuda("c")
        unclosed.clear()
        await regions.unregister_cuda("c")
        assert len(regions._closings) == 0

    registered(holds)


@pytest.mark.parametrize("told", [[], ["c"], [""]], ids=["nobody", "by name", "all"])
def test_who_unregisters_all_is_told_as_long_as_it_holds_whoever_was_told_before(regions, register, monkeypatch, told):
    """One of them may have the memory, however much later it asks."""
    now = time.monotonic()

    async def asks_later():
        unclosed = await register("c")
        unclosed["who"] = NO
        for name in told or ["c"]:
            closing = regions.unregister_cuda(name)
            if not told:
                closing.cancel()
            await asyncio.wait({closing})
            assert not told or isinstance(closing.exception(), Internal)
        monkeypatch.setattr("time.monotonic", lambda: now + 1e6)
        for _ in range(2):
            with pytest.raises(Internal, match="'c' unregistered, but not closed: the driver refuses that in the"):
                await regions.unregister_cuda("")
        await register("d")
        with pytest.raises(Internal, match="'c' unregistered"):  # what it has unregistered itself is closed
            await regions.unregister_cuda("")
        unclosed.clear()  # it went with its process
        await regions.unregister_cuda("")
        assert len(regions._closings) == 0

    registered(asks_later)


@pytest.mark.parametrize("system", [False, True])
def test_a_refusal_holds_until_a_region_of_that_name_is_one(regions, register, device, system):
    async def again():
        (await register("c"))["who"] = NO
        with pytest.raises(Internal):
            await regions.unregister_cuda("c")
        with pytest.raises(TisError):
            if system:
                regions.register_system("c", "/nosuch", 0, 10)
            else:
                await regions.register_cuda("c", device.handle("nosuch"), 0, 10)
        with pytest.raises(Internal):
            await regions.unregister_cuda("c")
        if system:  # it is somebody else's, most likely
            with ShmFile(bytes(10)) as file:
                regions.register_system("c", file.key, 0, 10)
            with pytest.raises(Internal):
                await regions.unregister_cuda("c")
            regions.unregister_system("c")
        await register("c")
        await regions.unregister_cuda("c")

    registered(again)


def test_refusals_that_nobody_asks_for_are_bounded(regions, device, register, monkeypatch):
    async def never_asked():
        for name in "cd":
            (await register(name))["who"] = INSTANCE
            regions.unregister_cuda(name).cancel()
        await comes_true(lambda: not regions.unfinished())
        with pytest.raises(Unavailable, match="2 regions are registered or being closed, which is the limit"):
            await register("e")
        with pytest.raises(Internal):
            await regions.unregister_cuda("")
        await register("e")
        unclosed = await register("f")
        unclosed["who"] = INSTANCE
        regions.unregister_cuda("f").cancel()
        await comes_true(lambda: not regions.unfinished())
        with pytest.raises(Unavailable, match="which is the limit"):
            await register("g")
        unclosed.clear()  # it went with its process
        await register("g")

    monkeypatch.setattr("tisfast.limits.REGIONS_MAX", 2)
    registered(never_asked)


def test_a_mistake_of_ours_is_no_success(regions, device, monkeypatch, caplog):
    async def fails():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        monkeypatch.setattr(LANE, "passed", None)
        with pytest.raises(Internal, match="server has failed to close it .TypeError"):
            await regions.unregister_cuda("c")

    registered(fails)
    assert "closing shared memory region 'c' failed" in caplog.text
