"""Clients' GPU memory that is being closed: behind who uses it, and then by its GPU.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from tisfast import limits
from tisfast.native.cuda_faces import By, Devices, Gone, Holder, Refusal, Unclosed, Waits
from tisfast.native.cuda_lanes import HANGS, hangs
from tisfast.native.region import DeviceFile, Region
from tisfast.operations.region_words import NOT_CLOSED, TO_ITS_END, listed
from tisfast.operations.slices import Pieces


class Uses:
    """Which memory requests use, found by one walk over those of each instance."""

    def __init__(self) -> None:
        self._of: dict[Callable[[], object], set[int]] = {}

    def walk(self, holders: Iterable[Holder]) -> Iterator[None]:
        """Those that were not looked at yet, in steps."""
        for each in holders:
            if each.uses not in self._of:
                found = self._of[each.uses] = set()
                for some in each.uses():
                    found |= some
                    yield

    def of(self, holder: Holder, memory: object) -> bool:
        """Whether requests of an instance that was looked at use this DeviceMemory, which was there then."""
        return id(memory) in self._of.get(holder.uses, ())


class Closing:
    """Memory that is being closed, and the name of the region that it was.

    done: when it is; number: of the call that has unregistered it, and over: from which call on nobody is told of its
    refusals any more; is_logged: that it takes long; is_told: its refusals, to somebody.
    """

    def __init__(self, name: str, done: asyncio.Future[None]) -> None:
        self.name, self.done = name, done
        self.number, self.over = 0, float("inf")
        self.is_logged = self.is_told = False

    def walk(self, uses: Uses) -> Iterator[None]:
        """What `waits` wants to know, in steps."""
        return iter(())

    def waits(self, uses: Uses) -> Waits:
        """For what."""
        raise NotImplementedError

    def unclosed(self) -> list[Refusal]:
        """The refusals that there are."""
        raise NotImplementedError

    def lingering(self) -> list[str]:
        """The killed processes that have it open still (Holder.lingers)."""
        return []

    @property
    def refusals(self) -> list[Refusal]:
        """Where it stays open, now that this is done."""
        if not self.done.done() or self.done.cancelled():
            return []
        error = self.done.exception()
        return self.unclosed() if error is None else [Refusal(By.BUG, "the server", repr(error))]


class _InVain(Closing):
    """What the registration of a region has opened in vain, or may still open."""

    def __init__(
        self, name: str, done: asyncio.Future[None], waits: Callable[[], Waits], unclosed: Sequence[Unclosed]
    ) -> None:
        super().__init__(name, done)
        self._waits, self._unclosed = waits, unclosed

    def waits(self, uses: Uses) -> Waits:
        return self._waits()

    def unclosed(self) -> list[Refusal]:
        return _all(self._unclosed)


class _Unknown(Closing):
    """Of what nobody can say whether it is closed: a bug of the server, or no memory, was met as it was let go of."""

    def __init__(self, name: str, error: Exception) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_exception(error)
        super().__init__(name, done)


def closing_of(name: str, make: Callable[[str], Closing]) -> Closing:
    """What `make` gives.  Where it fails, one that is told as refused: nobody may take that memory for closed."""
    try:
        return make(name)
    except Exception as error:
        _clear_frames(error)  # they would keep the memory as long as somebody is to be told
        return _Unknown(name, error)


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class Coming:
    """A region that is being registered.

    done: the registration; waits: says for what; closing: what it has opened in vain.
    """

    done: asyncio.Future[None]

    def __init__(self, whose: str) -> None:
        self.waits = partial(hangs, whose)
        self.closing: Closing | None = None

    def unregistered(self, name: str) -> Closing:
        """It is none any more: done when what it opens has been closed."""
        return _Came(name, asyncio.ensure_future(self._over()), self)

    async def _over(self) -> None:
        await asyncio.wait({self.done})
        if self.closing is not None:
            await self.closing.done


class _Came(Closing):
    """What was unregistered while it was being registered."""

    def __init__(self, name: str, done: asyncio.Future[None], coming: Coming) -> None:
        super().__init__(name, done)
        self._coming = coming

    def waits(self, uses: Uses) -> Waits:
        closing = self._coming.closing
        return self._coming.waits() if closing is None else closing.waits(uses)

    def unclosed(self) -> list[Refusal]:
        return [] if self._coming.closing is None else self._coming.closing.refusals


class _Removed(Closing):
    """What was a region."""

    def __init__(self, region: Region, done: asyncio.Future[None], devices: Devices) -> None:
        super().__init__(region.name, done)
        self.device = region.device
        self._devices = devices
        file = _file(region)
        self._file = weakref.ref(file)
        self._unclosed: Unclosed = file.memory.unclosed
        self._holders: Mapping[object, Holder] = file.memory.holders
        self.is_left = False  # to its GPU, as nobody uses it

    def unclosed(self) -> list[Refusal]:
        return _all([self._unclosed])

    def lingering(self) -> list[str]:
        return sorted({each.lingers for each in list(self._holders.values()) if each.lingers})

    def walk(self, uses: Uses) -> Iterator[None]:
        if self._file() is not None:
            yield from uses.walk(list(self._holders.values()))

    def waits(self, uses: Uses) -> Waits:
        """For requests, instances, or its GPU."""
        holders = [each for each in list(self._holders.values()) if not each.lingers]
        names = sorted({each.name for each in holders})
        reasons: list[str] = []
        remedies: list[str] = []
        if (file := self._file()) is not None:
            users = sorted({each.name for each in holders if uses.of(each, file.memory)})
            self._tell_used(file, users, names, reasons, remedies)
        elif names:
            have, batch = ("has", "it executes a batch that takes long, or its process does")
            if len(names) > 1:
                have, batch = ("have", "they execute batches that take long, or their processes do")
            reasons.append(f"{listed(names)} {have} it open and {have} not closed it yet: {batch} not run")
            remedies.append(NOT_CLOSED)
        if lingering := self.lingering():
            have, them = ("has", "this process has") if len(lingering) == 1 else ("have", "these processes have")
            frees = "" if reasons or self._unclosed else f". Free the memory when {them} ended"
            reasons.append(
                f"{listed(lingering)} {have} it open still: killed, but not ended, most likely in a call of a GPU's "
                f"driver that hangs{frees}"
            )
            remedies.append(HANGS)
        return Waits(tuple(reasons), tuple(remedies)) if reasons else self._devices.waits(self.device)

    def _tell_used(  # noqa: PLR0917 - the last two are what is told
        self, file: DeviceFile, users: Sequence[str], names: Sequence[str], reasons: list[str], remedies: list[str]
    ) -> None:
        """users: the instances whose requests use it; names: those that have it open."""
        where = f" in {listed(users)}" if users else ": they are copied, wait for a model or are executed by one"
        reasons.append(f"requests use it{where}")
        remedies.append(TO_ITS_END)
        if idle := [each for each in names if each not in users]:
            have, close = ("has", "closes") if len(idle) == 1 else ("have", "close")
            reasons.append(f"{listed(idle)} only {have} it open, and {close} it after them")
        lanes = file.lane(0), self._devices.lane(self.device)
        if any(each.seconds >= limits.GPU_TOLD_SECONDS for each in lanes):
            hung = self._devices.waits(self.device)
            reasons += hung.reasons
            remedies += hung.remedies


class Closer:
    """Has memory closed.  What nobody uses any more is waited for together, GPU by GPU."""

    def __init__(self, devices: Devices, pieces: Pieces) -> None:
        self._devices, self._pieces = devices, pieces
        self._next: dict[int, deque[asyncio.Future[None]]] = {}  # by GPU: those that wait for it from the next turn on
        self._waiting: set[asyncio.Future[None]] = set()

    def closed(self, left: list[Region]) -> Closing:
        """The only one of these, which is taken out: it was a region, and most likely nothing else refers to it."""
        loop = asyncio.get_running_loop()
        region = left.pop()
        removed = _Removed(region, loop.create_future(), self._devices)
        gone: Gone = _file(region).memory.gone
        del region  # its memory goes with this, where nobody uses it
        if gone.is_told:
            self._leave(removed)
        else:
            gone.then(partial(self._tell_gone, loop, removed))
        return removed

    def in_vain(self, name: str, device: int, unclosed: Sequence[Unclosed]) -> Closing:
        """What nobody refers to any more.  unclosed: of each DeviceMemory that there is when it is done."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait(device, done)
        return _InVain(name, done, partial(self._devices.waits, device), unclosed)

    def _tell_gone(self, loop: asyncio.AbstractEventLoop, removed: _Removed) -> None:
        """In a finaliser, in any thread, maybe twice."""
        with suppress(RuntimeError):  # the server ends
            loop.call_soon_threadsafe(self._pieces.add, partial(self._leave, removed))

    def _leave(self, removed: _Removed) -> bool:
        if not removed.is_left:
            removed.is_left = True
            self._wait(removed.device, removed.done)
        return False

    def _wait(self, device: int, done: asyncio.Future[None]) -> None:
        if device not in self._next:
            self._next[device] = deque()
            waiting = asyncio.ensure_future(self._passed(device))
            self._waiting.add(waiting)
            waiting.add_done_callback(self._waiting.discard)
        self._next[device].append(done)

    async def _passed(self, device: int) -> None:
        waiting = self._next.pop(device)  # in the next turn
        error: Exception | None = None
        try:
            lane = self._devices.lane(device)
            await lane.passed()
            await lane.passed()  # until then the thread that opened the memory may have referred to it
            await self._devices.ready(device, None)  # it may have been lost until then, and goes with its context
            await lane.passed()
        except Exception as failed:  # told to who unregisters
            error = failed
        self._pieces.add(partial(_finish, waiting, error))


def _finish(waiting: deque[asyncio.Future[None]], error: Exception | None) -> bool:
    done = waiting.popleft()
    if done.cancelled():
        pass  # the loop ends
    elif error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
    return bool(waiting)


def _file(region: Region) -> DeviceFile:
    assert isinstance(region.file, DeviceFile)
    return region.file


def _all(unclosed: Sequence[Unclosed]) -> list[Refusal]:
    return [refusal for each in unclosed for refusal in list(each.values())]
