"""Regions of GPU memory that are registered and unregistered while their GPU, or who uses them, takes its time."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tests.native.helpers import LANE, HostDevice, ShmFile
from tests.operations.helpers import BY_NAME, logged, registered
from tests.waiting import until as comes_true
from tisfast.errors import BadRequest, Unavailable
from tisfast.executor import Lane
from tisfast.native.cuda_faces import By, Holder, Refusal, Waits
from tisfast.native.cuda_lanes import HANGS
from tisfast.operations.region_words import NOT_CLOSED, TO_ITS_END
from tisfast.operations.regions import ClientRegions


def short(monkeypatch):
    """From now on: a registration on a busy machine may take longer."""
    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    monkeypatch.setattr("tisfast.limits.GPU_TOLD_SECONDS", 0.05)


@pytest.mark.parametrize("name", ["c", ""])
def test_unregistering_says_so_while_the_memory_is_not_closed(regions, device, busy, monkeypatch, caplog, name):  # noqa: PLR0917
    async def hanging():
        for each in "cd":
            await regions.register_cuda(each, device.handle("a"), 0, 10)
        short(monkeypatch)
        busy()
        closing = regions.unregister_cuda(name)
        assert [each["name"] for each in regions.cuda_status("")] == (["d"] if name else [])
        with pytest.raises(Unavailable, match=text):
            await closing
        with pytest.raises(Unavailable, match=text):  # it is not closed yet
            await regions.unregister_cuda(name)
        await regions.unregister_cuda("x")
        busy.over.set()
        await regions.unregister_cuda(name)

    which = "region 'c'" if name else "regions 'c' and 'd'"
    text = (
        f"^shared memory {which} unregistered, but not closed within 0.1 s; do not free the memory yet, and "
        "unregister again to wait again: the host hangs or is busy with others' work. Look whether "
    )
    registered(hanging)
    told = [each for each in logged(caplog) if f"{which} unregistered" in each]
    assert len(told) == 1  # for all who wait
    assert told[0].startswith(
        f"shared memory {which} unregistered, but not closed within 0.05 s: the host hangs or is busy"
    )
    assert told[0].count("the host hangs") == told[0].count("nvidia-smi' answers") == 1


BATCH = "it executes a batch that takes long, or its process"


@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_unregistering_says_which_instances_it_waits_for(regions, device, monkeypatch, caplog, count):
    async def waiting():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        short(monkeypatch)
        memory = regions.table.get("c").file.memory
        for at in range(1, count + 1):
            memory.holders[at] = Holder(f"instance m_0_{at}", None)
        with pytest.raises(Unavailable, match=f"do not free the memory yet.*: {whose} it open and"):
            await regions.unregister_cuda("c")
        assert regions.unfinished() == [f"shared memory region 'c' still to be closed: {text}"]
        memory.holders.clear()
        del memory  # as the instances' tables do
        await regions.unregister_cuda("c")
        assert regions.unfinished() == []

    first = ", ".join(f"instance m_0_{at}" for at in range(1, 4))
    named = {1: "instance m_0_1", 2: "instance m_0_1 and instance m_0_2", 4: f"{first} and 1 other"}
    whose = f"{named.get(count, f'{first} and 2 others')} {'have' if count > 1 else 'has'}"
    batch = "they execute batches that take long, or their processes do" if count > 1 else f"{BATCH} does"
    has = "have" if count > 1 else "has"
    text = f"{whose} it open and {has} not closed it yet: {batch} not run. {NOT_CLOSED}"
    registered(waiting)
    assert logged(caplog) == [f"shared memory region 'c' unregistered, but not closed within 0.05 s: {text}"]


def test_system_memory_is_unregistered_at_once(regions, busy):
    busy()
    with ShmFile(bytes(10)) as file:
        regions.register_system("s", file.key, 0, 10)
        assert regions.unregister_system("s") is None
    assert regions.system_status("") == []


@pytest.mark.parametrize("name", ["c", ""])
@pytest.mark.parametrize("user", ["request", "instance"])
def test_unregistering_waits_for_who_uses_the_memory(regions, device, name, user):
    """A decoupled model lets go of its inputs behind its last response, and an instance of memory behind its batch."""

    async def used():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        file = regions.table.get("c").file
        kept = file if user == "request" else file.memory
        del file
        closing = regions.unregister_cuda(name)
        assert not (await asyncio.wait({closing}, timeout=0.1))[0]
        del kept
        await closing
        assert device.open_count == 0

    registered(used)


def test_each_reason_is_told_once_with_its_regions(regions, device, busy, monkeypatch):
    async def several():
        for each in "cdefg":
            await regions.register_cuda(each, device.handle("a"), 0, 10)
        short(monkeypatch)
        kept = [regions.table.get(each).file for each in "cd"]
        busy()
        with pytest.raises(Unavailable) as told:
            await regions.unregister_cuda("")
        kept.clear()
        busy.over.set()
        await regions.unregister_cuda("")
        return str(told.value)

    hangs = "the host hangs or is busy with others' work"
    assert registered(several) == (
        "shared memory regions 'c', 'd', 'e' and 2 others unregistered, but not closed within 0.1 s; do not free the "
        "memory yet, and unregister again to wait again: 'c' and 'd': requests use it: they are copied, wait for a "
        f"model or are executed by one; 'c', 'd', 'e' and 2 others: {hangs}. {TO_ITS_END}. Look whether 'nvidia-smi' "
        "answers; if requests for it go on failing, reset it (nvidia-smi --gpu-reset -i UUID; see 'nvidia-smi -L' "
        "and the server's log) and start the server "
        f"again{BY_NAME}"
    )


def test_who_uses_the_memory_is_told(regions, device, monkeypatch):
    async def used():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        short(monkeypatch)
        file = regions.table.get("c").file
        memory = file.memory
        memory.holders[1] = Holder("instance m_0_1", None)
        only = "instance m_0_1 only has it open, and closes it after them"
        for uses, who in (
            ([], f": they are copied, wait for a model or are executed by one; {only}"),
            ([2], f" in instance m_0_2; {only}"),
            ([1, 2], " in instance m_0_1 and instance m_0_2"),
        ):
            for at in uses:
                memory.holders[at] = Holder(f"instance m_0_{at}", None, uses=lambda: [{id(memory)}])
            with pytest.raises(Unavailable, match=f"not closed within 0.1 s; .*: requests use it{who}. A request"):
                await regions.unregister_cuda("c")
        memory = None
        file.memory.holders.clear()
        del file
        await regions.unregister_cuda("c")

    registered(used)


KILLED = (
    "instance m_0_0 of model 'm' (pid 7) has it open still: killed, but not ended, most likely in a call of a GPU's "
    "driver that hangs"
)
FREE = ". Free the memory when this process has ended"


@pytest.mark.parametrize("more", ["", "requests", "instance", "refusal"])
def test_who_waits_for_a_killed_process_may_free_the_memory_only_if_nothing_else_has_it(
    regions, device, monkeypatch, more
):
    async def lingers():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        short(monkeypatch)
        file = regions.table.get("c").file
        memory = file.memory
        memory.holders[1] = Holder("m_0_0", None, "instance m_0_0 of model 'm' (pid 7)")
        if more in ("requests", "instance"):
            memory.holders[2] = Holder("instance n_0_0", None, uses=lambda: [{id(memory)}])
        if more == "refusal":
            memory.unclosed["n"] = Refusal(By.INSTANCE, "instance n_0_0 of model 'n' (pid 8)", "no")
        if more != "requests":
            del file
        with pytest.raises(Unavailable, match="'c' unregistered, but not closed within 0.1 s") as told:
            await regions.unregister_cuda("c")
        memory.holders.clear()
        memory.unclosed.clear()
        file = memory = None
        await regions.unregister_cuda("c")
        return str(told.value).partition("to wait again: ")[2]

    told = registered(lingers)
    if more == "requests":
        assert told == f"requests use it in instance n_0_0; {KILLED}. {TO_ITS_END}. {HANGS}"
    elif more == "instance":
        open_still = f"instance n_0_0 has it open and has not closed it yet: {BATCH} does not run"
        assert told == f"{open_still}; {KILLED}. {NOT_CLOSED}. {HANGS}"
    else:
        assert told == f"{KILLED}{FREE if not more else ''}. {HANGS}"


def test_what_frees_the_memory_of_one_region_is_not_told_of_others(regions, device, monkeypatch):
    async def both():
        for each in "cd":
            await regions.register_cuda(each, device.handle("a"), 0, 10)
        short(monkeypatch)
        memories = [regions.table.get(each).file.memory for each in "cd"]
        kept = regions.table.get("d").file
        memories[0].holders[1] = Holder("m_0_0", None, "instance m_0_0 of model 'm' (pid 7)")
        with pytest.raises(Unavailable) as told:
            await regions.unregister_cuda("")
        memories[0].holders.clear()
        memories.clear()
        del kept
        await regions.unregister_cuda("")
        return str(told.value)

    used = "'d': requests use it: they are copied, wait for a model or are executed by one"
    assert f"to wait again: 'c': {KILLED}{FREE}; {used}. {HANGS}. {TO_ITS_END}{BY_NAME}" in registered(both)


class Losing(HostDevice):
    """One that waits until what it has lent of a lost GPU is back, as `waits` says."""

    def __init__(self):
        super().__init__(a=b"0123456789")
        self.begun, self.back = asyncio.Event(), asyncio.Event()

    async def ready(self, device, seconds):
        self.begun.set()
        await self.back.wait()

    def waits(self, device):
        return Waits(("the server has lost GPU 0",), (HANGS,))


def test_a_registration_that_waits_for_a_lost_gpu_is_said_to_wait_for_that(monkeypatch, caplog):
    device = Losing()
    regions = ClientRegions(lambda: device, allowed=True)

    async def lost():
        coming = regions.register_cuda("x", device.handle("a"), 0, 10)
        await device.begun.wait()
        assert regions.unfinished() == [
            f"shared memory region 'x' still to be registered: the server has lost GPU 0. {HANGS}"
        ]
        short(monkeypatch)
        with pytest.raises(Unavailable, match="'x' unregistered, .*to wait again: the server has lost GPU 0. Look"):
            await regions.unregister_cuda("x")
        device.back.set()
        await regions.unregister_cuda("x")
        with pytest.raises(Unavailable, match="'x' was unregistered while it was being registered"):
            await coming

    registered(lost)
    text = f"shared memory region 'x' unregistered, but not closed within 0.05 s: the server has lost GPU 0. {HANGS}"
    assert logged(caplog) == [text]


class Opening(HostDevice):
    """One whose driver takes its time to open a handle."""

    def __init__(self, **memories):
        super().__init__(**memories)
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.lane_of_its_own = LANE

    def lane(self, device):
        return self.lane_of_its_own

    def open(self, handle, device):
        self.begun.set()
        self.may_end.wait()
        return super().open(handle, device)


@pytest.mark.parametrize("when", ["meanwhile", "told"])
@pytest.mark.parametrize("name", ["c", ""])
def test_unregistering_says_so_while_the_memory_may_still_be_opened(monkeypatch, when, name):
    device = Opening(a=b"0123456789")
    regions = ClientRegions(lambda: device, allowed=True)

    async def late():
        coming = regions.register_cuda("c", device.handle("a"), 0, 10)
        await asyncio.to_thread(device.begun.wait, 60)
        if when == "told":
            with pytest.raises(Unavailable, match="(host|driver) has not done a call within "):
                await coming
        try:
            with pytest.raises(Unavailable, match="'c' unregistered, but not closed within 0.1 s"):
                await regions.unregister_cuda(name)
        finally:
            device.may_end.set()
        await regions.unregister_cuda(name)
        assert device.open_count == 0
        with pytest.raises(Unavailable):
            await coming

    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    monkeypatch.setattr("tisfast.limits.GPU_TOLD_SECONDS", 0.05)
    registered(late)


def test_what_is_unregistered_in_the_moment_of_its_registration_is_closed_first(regions, device, busy):
    async def look():
        coming = regions.register_cuda("c", device.handle("a"), 0, 10)
        while not regions.cuda_status(""):
            await asyncio.sleep(0)
        busy()
        closing = regions.unregister_cuda("")
        assert not (await asyncio.wait({closing}, timeout=0.1))[0]
        busy.over.set()
        await closing
        assert device.open_count == 0
        await coming

    registered(look)


@pytest.mark.parametrize("nbytes", [0, 11])
def test_a_region_that_is_refused_is_closed_before_the_client_may_free_it(regions, device, busy, nbytes):
    async def refused():
        gc.disable()  # nobody waits for the collector
        try:
            coming = regions.register_cuda("c", device.handle("a"), 0, nbytes)
            text = f"byte_size {nbytes}; the memory behind the handle has 10 bytes, byte_size may be 1 to 10.$"
            with pytest.raises(BadRequest, match=text):
                await coming
            await regions.unregister_cuda("c")
            assert device.open_count == 0
        finally:
            gc.enable()

    registered(refused)


def test_registrations_that_a_hung_gpu_refuses_leave_nothing(monkeypatch):
    device = Opening(a=b"0123456789")
    device.lane_of_its_own = Lane(4, "test-hung", "the host", "")
    regions = ClientRegions(lambda: device, allowed=True)

    async def refused():
        first = regions.register_cuda("first", device.handle("a"), 0, 10)
        await asyncio.to_thread(device.begun.wait, 60)
        try:
            for turn in range(3):
                waiting = [regions.register_cuda(f"r{turn}-{at}", device.handle("a"), 0, 10) for at in range(20)]
                for each in waiting:
                    with pytest.raises(Unavailable):
                        await each
            with pytest.raises(Unavailable):
                await first
            assert len(device.lane_of_its_own._orders) <= 2  # what is closed behind the one that has begun
            assert [each for each in regions.unfinished() if "'first' still to be closed" not in each] == []
        finally:
            device.may_end.set()
        await regions.unregister_cuda("")
        assert device.open_count == 0

    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    registered(refused)


class Beginning(HostDevice):
    """One whose driver takes so many seconds to begin, and then so many to begin a lost GPU anew, of a clock's."""

    def __init__(self, driver, lost):
        super().__init__(a=b"0123456789")
        self._driver, self._lost = driver, lost
        self.now, self.most = 1000.0, None

    def monotonic(self):
        return self.now

    def load(self):
        self.now += self._driver
        return self

    async def ready(self, device, seconds):
        self.most = seconds
        self.now += self._lost


@pytest.mark.parametrize(("driver", "lost", "most"), [(0, 44.9, 30), (20, 24.9, 25), (44.9, 0, 0.1), (50, 50, 0)])
def test_a_registration_waits_for_driver_lost_gpu_and_opening_together(busy, monkeypatch, driver, lost, most):
    device = Beginning(driver, lost)
    monkeypatch.setattr("tisfast.executor.time", device)
    busy()  # so that nothing is opened
    left = max(45 - driver - lost, 0)
    with pytest.raises(Unavailable, match=f"the host has not done a call within {left:.1g} s"):
        registered(ClientRegions(device.load, allowed=True).register_cuda, "c", device.handle("a"), 0, 10)
    assert device.most == most


def test_a_registration_waits_for_a_driver_that_does_not_begin(monkeypatch):
    begins = threading.Event()
    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    try:
        with pytest.raises(Unavailable, match="the NVIDIA driver has not done a call within "):
            registered(ClientRegions(begins.wait, allowed=True).register_cuda, "c", bytes(64), 0, 10)
    finally:
        begins.set()


class Two(HostDevice):
    """Two GPUs, each with a thread of its own; handles are of both."""

    def __init__(self):
        super().__init__(a=b"0123456789")
        self.count = 2
        self.lanes = LANE, Lane(4, "test-other", "the other GPU", "")

    def lane(self, device):
        return self.lanes[device]

    def open(self, handle, device):
        return super().open(handle, 0)


def test_a_name_that_is_used_again_waits_for_what_was_there_before(busy, monkeypatch):
    device = Two()
    regions = ClientRegions(lambda: device, allowed=True)

    async def again():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        busy()
        first = regions.unregister_cuda("c")
        for _ in range(100):
            await regions.register_cuda("c", device.handle("a"), 1, 10)
            later = regions.unregister_cuda("c")
            await device.lanes[1].passed()
            await device.lanes[1].passed()
            later.cancel()
        assert len(asyncio.all_tasks()) < 20
        second = regions.unregister_cuda("c")
        await asyncio.wait({first, second})
        for each in (first, second):
            with pytest.raises(Unavailable, match="the host hangs"):
                each.result()
        busy.over.set()
        await regions.unregister_cuda("c")

    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 2)
    monkeypatch.setattr("tisfast.limits.GPU_TOLD_SECONDS", 0.05)
    registered(again)


@pytest.mark.parametrize("opens", [False, True])
def test_unregistering_all_does_not_wait_for_what_is_unregistered_later(busy, opens):
    """A name is free at once, and a client that uses it again may have memory on a GPU that hangs."""
    device = Two()
    regions, over = ClientRegions(lambda: device, allowed=True), threading.Event()

    async def again():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        busy()
        if opens:
            coming = regions.register_cuda("late", device.handle("a"), 0, 10)
        first = regions.unregister_cuda("")
        await regions.register_cuda("c", device.handle("a"), 1, 10)
        device.lanes[1].post(over.wait)
        second = regions.unregister_cuda("")
        busy.over.set()
        await first
        assert not second.done()
        over.set()
        await second
        assert device.open_count == 0
        if opens:
            with pytest.raises(Unavailable, match="was unregistered while it was being registered"):
                await coming

    try:
        registered(again)
    finally:
        over.set()


@pytest.mark.parametrize("begun", [False, True])
def test_who_waits_is_told_when_the_server_ends(regions, device, busy, begun):
    """Its connection waits for the answer, and the server's end for the connection."""

    async def ends():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        busy()
        closing = regions.unregister_cuda("c")
        if begun:
            await asyncio.sleep(0)
            regions.end()
        else:
            regions.end()
            closing = regions.unregister_cuda("c")
        with pytest.raises(Unavailable, match="'c' unregistered, but not closed before the server ends"):
            await closing
        assert ["'c' still to be closed: the host hangs" in each for each in regions.unfinished()] == [True]
        busy.over.set()

    registered(ends)


@pytest.mark.parametrize("begun", [False, True])
def test_who_registers_is_told_when_the_server_ends(begun):
    device = Opening(a=b"0123456789")
    regions = ClientRegions(lambda: device, allowed=True)
    text = (
        "^failed to register shared memory region '{}': the server ends, and GPU 0 has not opened the memory yet. Free "
        "the memory when the server has ended$"
    )

    async def ends():
        if not begun:
            LANE.post(device.may_end.wait)
        coming = regions.register_cuda("c", device.handle("a"), 0, 10)
        other = regions.register_cuda("d", device.handle("a"), 0, 10)
        gone = regions.unregister_cuda("d")
        if begun:
            await asyncio.to_thread(device.begun.wait, 60)
        regions.end()
        for name, each in (("c", coming), ("d", other)):
            with pytest.raises(Unavailable, match=text.format(name)):
                await each
        with pytest.raises(Unavailable, match="'d' unregistered, but not closed before the server ends"):
            await gone
        with pytest.raises(Unavailable, match=text.format("late")):
            regions.register_cuda("late", device.handle("a"), 0, 10)
        (told,) = regions.unfinished()
        assert told.startswith("shared memory regions 'd' and 'c' still to be closed: the host hangs or is busy")
        device.may_end.set()
        await comes_true(lambda: not regions.unfinished())
        assert device.open_count == 0

    try:
        registered(ends)
    finally:
        device.may_end.set()
