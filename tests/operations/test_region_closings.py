"""GPU memory that is closed in its GPU's own time, as the driver does it: who unregisters it is told so behind that."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from tests.native.helpers import HostDevice
from tests.operations.helpers import registered
from tests.waiting import until
from tisfast.errors import BadRequest, Internal, Unavailable
from tisfast.executor import Lane
from tisfast.native.cuda_faces import By, Refusal, Unopened
from tisfast.operations.regions import ClientRegions


class Posting(HostDevice):
    """Its thread opens memory when it may, and closes what nobody refers to any more when it may."""

    def __init__(self):
        super().__init__(a=b"0123456789")
        self._lane = Lane(16, "test-posting", "the host", "")
        self.opening, self.may_open = threading.Event(), threading.Event()
        self.closing, self.may_close = threading.Event(), threading.Event()
        self.closed = 0

    def lane(self, device):
        return self._lane

    def open(self, handle, device):
        self.opening.set()
        self.may_open.wait()
        memory = super().open(handle, device)
        weakref.finalize(memory, self._lane.post, self._close).atexit = False
        return memory

    def _close(self):
        self.closing.set()
        self.may_close.wait()
        self.closed += 1

    async def closes_before(self, told):
        """The memory, and `told` is done behind that."""
        await until(self.closing.is_set)
        assert not (await asyncio.wait({told}, timeout=0.1))[0]
        self.may_close.set()
        await told
        assert self.closed == 1


@pytest.fixture
def device():
    made = Posting()
    yield made
    made.may_open.set()
    made.may_close.set()


@pytest.fixture
def regions(device):
    return ClientRegions(lambda: device, allowed=True)


@pytest.mark.parametrize("name", ["c", ""])
def test_what_is_opened_when_nobody_waits_any_more_is_closed_first(regions, device, monkeypatch, name):
    async def late():
        with monkeypatch.context() as short, pytest.raises(Unavailable, match="has not done a call within "):
            short.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
            await regions.register_cuda("c", device.handle("a"), 0, 10)
        told = regions.unregister_cuda(name)
        device.may_open.set()
        await device.closes_before(told)

    registered(late)


def test_a_refusal_to_close_what_is_opened_in_vain_and_late_is_told(regions, device, monkeypatch):
    def refused(handle, gpu):
        device.opening.set()
        device.may_open.wait()
        raise Unopened("no range", unclosed={"server": Refusal(By.SERVER, "the server", "no")})

    async def late():
        with monkeypatch.context() as short, pytest.raises(Unavailable, match="has not done a call within "):
            short.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
            await regions.register_cuda("c", device.handle("a"), 0, 10)
        told = regions.unregister_cuda("c")
        device.may_open.set()
        with pytest.raises(Internal, match="the driver refuses that in the server .no."):
            await told

    device.open = refused
    registered(late)


@pytest.mark.parametrize("name", ["c", ""])
@pytest.mark.parametrize("when", ["meanwhile", "told"])
def test_what_is_opened_in_vain_is_closed_first(regions, device, name, when):
    async def in_vain():
        coming = regions.register_cuda("c", device.handle("a"), 0, 10 if when == "meanwhile" else 11)
        await until(device.opening.is_set)
        if when == "meanwhile":
            told = regions.unregister_cuda(name)
            device.may_open.set()
            with pytest.raises(Unavailable, match="'c' was unregistered while it was being registered"):
                await coming
        else:
            device.may_open.set()
            with pytest.raises(BadRequest, match="byte_size 11; the memory behind the handle has 10 bytes"):
                await coming
            told = regions.unregister_cuda(name)
        await device.closes_before(told)

    registered(in_vain)


@pytest.mark.parametrize("closes", [False, True])
def test_what_is_being_opened_or_closed_counts_against_the_limit(regions, device, monkeypatch, closes):
    """Each holds memory of the GPU's, or will."""

    async def full():
        coming = [regions.register_cuda(name, device.handle("a"), 0, 10) for name in "cd"]
        told = [regions.unregister_cuda(name) for name in "cd" if closes]
        with pytest.raises(Unavailable, match="region 'e': 2 regions are registered or being closed, which is the lim"):
            regions.register_cuda("e", device.handle("a"), 0, 10)
        device.may_open.set()
        device.may_close.set()
        await asyncio.wait([*coming, *told])
        assert [each.exception() for each in told] == [None] * len(told)
        if closes:
            await regions.register_cuda("e", device.handle("a"), 0, 10)
        assert [each["name"] for each in regions.cuda_status("")] == (["e"] if closes else ["c", "d"])

    monkeypatch.setattr("tisfast.limits.REGIONS_MAX", 2)
    registered(full)
