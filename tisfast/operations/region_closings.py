"""Clients' GPU memory that is being closed, and what who unregisters it is told.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tisfast import limits
from tisfast.errors import Internal, Unavailable
from tisfast.executor import Lane
from tisfast.native.cuda import HANGS, Holder
from tisfast.native.region import DeviceFile, Region

log = logging.getLogger("tisfast.gpu")


class _StaysOpen(Exception):
    """Memory that processes have not closed.  where: which, each with the driver's reason."""

    def __init__(self, where: list[str]) -> None:
        super().__init__(*where)
        self.where = where


class Closing(NamedTuple):
    """Memory that is being closed.  waits: says for what, with the remedy."""

    done: asyncio.Future[None]
    waits: Callable[[], str]

    @property
    def refusals(self) -> list[str]:
        """Where it stays open, now that this is done."""
        ended = self.done.done() and not self.done.cancelled()
        error = self.done.exception() if ended else None
        return error.where if isinstance(error, _StaysOpen) else []


class Coming:
    """A region that is being registered.

    done: the registration; waits: says for what, with the remedy; closing: what it has opened in vain.
    """

    done: asyncio.Future[None]

    def __init__(self, whose: str) -> None:
        self.waits = partial(hangs, whose)
        self.closing: Closing | None = None

    def unregistered(self) -> Closing:
        """It is none any more: done when what it opens has been closed."""
        return Closing(asyncio.ensure_future(self._over()), self._waits)

    def _waits(self) -> str:
        return self.waits() if self.closing is None else self.closing.waits()

    async def _over(self) -> None:
        await asyncio.wait({self.done})
        if self.closing is not None:
            await self.closing.done


class Closings:
    """All that is being closed, by the names of regions that it was."""

    def __init__(self) -> None:
        self._of: dict[str, list[Closing]] = {}

    def __len__(self) -> int:
        """How much is being closed, and how many refusals nobody was told of."""
        return sum(map(len, self._of.values()))

    def add(self, name: str, what: Closing) -> None:
        """Under this name until it is done, and a refusal until it is told; who asked for it may have gone then."""

        def done(future: asyncio.Future[None]) -> None:
            if not what.refusals:
                self._forget(name, what)
            if not future.cancelled():
                future.exception()

        self._of.setdefault(name, []).append(what)
        what.done.add_done_callback(done)

    def closed(self, name: str) -> asyncio.Future[None]:
        """Done when all is that is being closed under this name now, "": under all.

        The log says once what is waited for so long; a refusal is told once, to all who wait for it.  Raises TisError,
        later.
        """
        names = [name] if name else list(self._of)
        return asyncio.ensure_future(self._closed([(each, one) for each in names for one in self._of.get(each, ())]))

    def unfinished(self) -> Iterable[tuple[str, str]]:
        """What is not closed: its name, and what it waits for."""
        return [(name, one.waits()) for name, each in self._of.items() for one in each if not one.done.done()]

    async def _closed(self, chosen: Sequence[tuple[str, Closing]]) -> None:
        begun = time.monotonic()
        if late := await _late(chosen, begun + limits.GPU_REGION_TOLD_SECONDS):
            log.warning("%s", _told_late(late, limits.GPU_REGION_TOLD_SECONDS, ""))
            if late := await _late(late, begun + limits.GPU_REGION_SECONDS_MAX):
                remedy = "; do not free the memory yet, and unregister again to wait again"
                raise Unavailable(_told_late(late, limits.GPU_REGION_SECONDS_MAX, remedy))
        refused = [(name, each) for name, each in chosen if each.refusals]
        for each in refused:
            self._forget(*each)
        if refused:
            where = ", in ".join(sorted({text for _, each in refused for text in each.refusals}))
            raise Internal(
                f"{named(name for name, _ in refused)} unregistered, but not closed: the driver refuses that in "
                f"{where}. Do not free the memory before they have ended: end the server, or unload the model of an "
                "instance"
            )

    def _forget(self, name: str, what: Closing) -> None:
        left = [each for each in self._of.pop(name, ()) if each is not what]
        if left:
            self._of[name] = left


class Removed:
    """A region that was one until now."""

    def __init__(self, region: Region) -> None:
        self.name, self.device = region.name, region.device
        self._file = weakref.ref(region.file)
        memory = region.file.memory if isinstance(region.file, DeviceFile) else None
        self._memory = None if memory is None else weakref.ref(memory)
        self.unclosed: list[str] = [] if memory is None else memory.unclosed
        self._holders: Mapping[object, Holder] = {} if memory is None else memory.holders
        self._waits_for = ""

    def waits(self) -> str:
        """For the instances that it waits for now, with the remedy; "" when it waits for none."""
        holders = list(self._holders.values())
        names = sorted({each.name for each in holders if self._waits_for == _CLOSED or each.keeps()})
        if not self._waits_for or not names:
            return ""
        return self._waits_for.format(names[0] + (f" and {len(names) - 1} others" if names[1:] else ""))

    async def closed_by_instances(self) -> None:
        """Wait until the instances that may have it open have closed it.

        What requests still use is waited for a moment only, and closed later.  Of requests that were answered an
        instance keeps inputs until its model has let go of them, and its batch is over: their clients know of no use.
        """
        file, memory = self._file(), None if self._memory is None else self._memory()
        if memory is None:
            return
        unused, closed = _end_of(file), _end_of(memory)
        del file, memory
        await asyncio.wait({unused}, timeout=limits.GPU_REGION_USED_SECONDS)
        self._waits_for = _KEPT
        while not unused.done() and self._is_kept():
            await asyncio.wait({unused}, timeout=limits.GPU_REGION_USED_SECONDS)
        self._waits_for = _CLOSED
        if unused.done():
            await closed
        self._waits_for = ""

    def _is_kept(self) -> bool:
        return any(each.keeps() for each in list(self._holders.values()))


_KEPT = (
    "instance {} keeps inputs there of requests that it has answered: until its model lets go of them, and the batch "
    "that is executed is over (--execution-timeout-secs ends one that hangs)"
)
_CLOSED = (
    "instance {} had it open and closes it behind the batch that is executed, which takes long "
    "(--execution-timeout-secs ends one that hangs)"
)


def _end_of(what: object) -> asyncio.Future[None]:
    """Done when nobody refers to it any more."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def gone() -> None:  # in a finaliser, in any thread
        with suppress(RuntimeError):  # the server ends
            loop.call_soon_threadsafe(_told, future)

    if what is None:
        _told(future)
    else:
        weakref.finalize(what, gone).atexit = False
    return future


def _told(future: asyncio.Future[None]) -> None:
    if not future.done():  # else it was cancelled, with who waits
        future.set_result(None)


def closing(lane: Lane, unclosed: list[str], removed: Removed | None = None) -> Closing:
    """Nobody here refers to the memory any more: it is closed when its GPU has done so.

    unclosed: of DeviceMemory; removed: the region that it was; instances may have it open.
    """

    async def closed() -> None:
        if removed is not None:
            await removed.closed_by_instances()
        await lane.passed()
        await lane.passed()  # until then the thread that opened the memory may have referred to it
        if unclosed:
            raise _StaysOpen(unclosed)

    def waits() -> str:
        return (removed.waits() if removed is not None else "") or hangs(lane.whose)

    return Closing(asyncio.ensure_future(closed()), waits)


async def _late(chosen: Sequence[tuple[str, Closing]], until: float) -> list[tuple[str, Closing]]:
    """Those that are not closed by then, time.monotonic()."""
    waited = {each.done for _, each in chosen if not each.done.done()}
    if waited:
        await asyncio.wait(waited, timeout=max(until - time.monotonic(), 0))
    return [(name, each) for name, each in chosen if not each.done.done()]


def _told_late(late: Sequence[tuple[str, Closing]], seconds: float, remedy: str) -> str:
    reasons = "; ".join(sorted({each.waits() for _, each in late}))
    return f"{named(name for name, _ in late)} unregistered, but not closed within {seconds:g} s{remedy}: {reasons}"


def named(names: Iterable[str]) -> str:
    """The first of them, and how many others there are."""
    first, *others = dict.fromkeys(names)
    return f"shared memory region '{first:.60}'" + (f" and {len(others)} others" if others else "")


def hangs(whose: str) -> str:
    """Of a GPU, with the remedy."""
    return f"{whose} hangs or is busy with others' work. {HANGS}"
