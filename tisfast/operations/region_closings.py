"""Clients' GPU memory that is being closed, and what who unregisters it is told.  Layer 4 (operations)."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from tisfast import limits, tuning
from tisfast.errors import Internal, Unavailable
from tisfast.native.cuda_faces import NOT_ENDED, Devices, Gone, Holder, LingeringRefusal, Unclosed
from tisfast.native.cuda_lanes import HANGS, hangs
from tisfast.native.region import DeviceFile, Region

log = logging.getLogger("tisfast.gpu")
_BY_NAME = (
    ". Who unregisters all regions is told this as long as it is so, whoever has the memory; unregister yours by their "
    "names to hear of them alone"
)


class Closing:
    """Memory that is being closed.

    waits: says for what, with the remedy; unclosed: the processes that have refused, when it is done; lingering: those
    that were killed and have not ended (Holder.lingers); is_logged: that it takes long; is_told: its refusals, to
    somebody.
    """

    def __init__(
        self,
        done: asyncio.Future[None],
        waits: Callable[[], str],
        unclosed: Callable[[], list[str]],
        lingering: Callable[[], list[str]],
    ) -> None:
        self.done, self.waits, self._unclosed, self.lingering = done, waits, unclosed, lingering
        self.is_logged = self.is_told = False

    @property
    def refusals(self) -> list[str]:
        """Where it stays open, now that this is done."""
        if not self.done.done() or self.done.cancelled():
            return []
        error = self.done.exception()
        return self._unclosed() if error is None else [f"the server ({error!r})"]


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
        return Closing(asyncio.ensure_future(self._over()), self._waits, self._unclosed, list)

    def _unclosed(self) -> list[str]:
        return [] if self.closing is None else self.closing.refusals

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
        self._told: dict[Closing, str] = {}  # with refusals that somebody was told of, by name; the oldest first
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_ended = False

    def __len__(self) -> int:
        """How much is being closed, and how many refusals nobody was told of."""
        return sum(map(len, self._of.values())) - len(self._told)

    def add(self, name: str, what: Closing) -> None:
        """Under this name until it is done, and where it is refused until it is closed all the same."""

        def done(future: asyncio.Future[None]) -> None:
            if not what.refusals:
                self._forget(name, what)
            error = None if future.cancelled() else future.exception()
            if error is not None:
                log.error("closing %s failed", named([name]), exc_info=error)

        self._of.setdefault(name, []).append(what)
        what.done.add_done_callback(done)

    def closed(self, name: str) -> asyncio.Future[None]:
        """Done when all is that is being closed under this name now, "": under all.

        The log says once what is waited for so long.  Refusals are told as long as they hold, whoever was told before:
        nobody here knows whose memory it is.  Raises TisError, later.
        """
        names = [name] if name else list(self._of)
        chosen = [(each, one) for each in names for one in self._of.get(each, ())]
        told = asyncio.ensure_future(self._closed(chosen, "" if name else _BY_NAME))
        self._waiting.add(told)
        told.add_done_callback(self._waiting.discard)
        return told

    def unfinished(self) -> Iterable[tuple[str, str]]:
        """What is not closed: its name, and what it waits for."""
        return [(name, one.waits()) for name, each in self._of.items() for one in each if not one.done.done()]

    def end(self) -> None:
        """The server ends, and its connections wait for the answers: who waits is told so."""
        self._is_ended = True
        for each in self._waiting:
            each.cancel()

    async def _closed(self, chosen: Sequence[tuple[str, Closing]], more: str) -> None:
        """more: behind what is told of what is open."""
        begun = time.monotonic()
        if late := await self._late(chosen, begun + limits.GPU_TOLD_SECONDS):
            if unlogged := [(name, each) for name, each in late if not each.is_logged]:
                log.warning("%s", _told_late(unlogged, limits.GPU_TOLD_SECONDS, ""))
                for _, each in unlogged:
                    each.is_logged = True
            if late := await self._late(late, begun + limits.GPU_REGION_SECONDS_MAX):
                remedy = "; do not free the memory yet, and unregister again to wait again"
                raise Unavailable(_told_late(late, limits.GPU_REGION_SECONDS_MAX, remedy) + more)
        refused: list[str] = []
        where: set[str] = set()
        for count, (name, each) in enumerate(chosen, 1):
            if refusals := each.refusals:
                refused.append(name)
                where.update(refusals)
            self._tell(name, each, refusals)
            if count % tuning.LOOP_SLICE_PIECES == 0:
                await asyncio.sleep(0)  # others have their turn
        if refused:
            raise Internal(f"{named(refused)} unregistered, but not closed: {_told_refused(where)}{more}")

    async def _late(self, chosen: Sequence[tuple[str, Closing]], until: float) -> list[tuple[str, Closing]]:
        """Those that are not closed by then, time.monotonic().  Raises Unavailable where the server ends first."""
        waited = {each.done for _, each in chosen if not each.done.done()}
        if waited:
            left = max(until - time.monotonic(), 0)
            try:
                await asyncio.wait(waited, timeout=min(left, limits.GPU_REGION_END_SECONDS) if self._is_ended else left)
            except asyncio.CancelledError:
                if not self._is_ended:
                    raise
        late = [(name, each) for name, each in chosen if not each.done.done()]
        if late and self._is_ended:
            raise Unavailable(
                f"{named(name for name, _ in late)} unregistered, but not closed before the server ends: free the "
                f"memory when it has ended{_also_lingering(late)}"
            )
        return late

    def tidied(self) -> int:
        """Forget what was refused and is closed all the same: how much there is then."""
        for name, what in [(name, one) for name, each in self._of.items() for one in each if one.done.done()]:
            if not what.refusals:
                self._forget(name, what)
        return len(self)

    def used_again(self, name: str) -> None:
        """A region of this name is registered: who unregisters that does not ask for what was told before."""
        for each in [one for one in self._of.get(name, ()) if one.is_told]:
            self._forget(name, each)

    def _tell(self, name: str, what: Closing, refusals: Sequence[str]) -> None:
        """Its refusals: they stay, as who asked may have left.  What is closed by now is forgotten."""
        if not refusals:
            self._forget(name, what)
        elif not what.is_told:
            what.is_told = True
            self._told[what] = name
            if len(self._told) > limits.GPU_REFUSALS_MAX:
                oldest = next(iter(self._told))
                self._forget(self._told[oldest], oldest)

    def _forget(self, name: str, what: Closing) -> None:
        self._told.pop(what, None)
        left = [each for each in self._of.pop(name, ()) if each is not what]
        if left:
            self._of[name] = left


class Removed:
    """A region that was one until now."""

    def __init__(self, region: Region) -> None:
        self.name, self.device = region.name, region.device
        file = region.file
        assert isinstance(file, DeviceFile)
        self._file = weakref.ref(file)
        memory = file.memory
        self.unclosed: Unclosed = memory.unclosed
        self._holders: Mapping[object, Holder] = memory.holders
        self._gone: Gone = memory.gone

    @property
    def is_used(self) -> bool:
        """Whether requests use it, or instances may have it open."""
        return not self._gone.is_told

    def waits(self, devices: Devices) -> str:
        """For requests, instances, or its GPU, with the remedy."""
        if lingering := self.lingering():
            have, them = ("has", "this process has") if len(lingering) == 1 else ("have", "these processes have")
            return (
                f"{_first(lingering)} {have} it open still: killed, but not ended, most likely "
                f"in a call of a GPU's driver that hangs. Free the memory when {them} ended. {HANGS}"
            )
        names = sorted({each.name for each in list(self._holders.values())})
        instances = f"instance {names[0]}{_and_others(len(names))}" if names else ""
        if (file := self._file()) is not None:
            where = f" in {instances}" if names else ": they are copied, wait for a model or are executed by one"
            lanes = file.lane(0), devices.lane(self.device)
            hung = [each for each in lanes if each.seconds >= limits.GPU_TOLD_SECONDS]
            return (
                f"requests use it{where}. One whose client has left is executed to its end, and a model may "
                "keep inputs (--execution-timeout-secs ends an instance that hangs)"
                + (f"; {devices.waits(self.device)}" if hung else "")
            )
        if not names:
            return devices.waits(self.device)
        return (
            f"{instances} had it open and closes it behind the batch that is executed, which takes long "
            "(--execution-timeout-secs ends one that hangs)"
        )

    def lingering(self) -> list[str]:
        """The killed processes that have it open still."""
        return sorted({each.lingers for each in list(self._holders.values()) if each.lingers})

    async def let_go(self) -> None:
        """Wait until no request uses it, and the instances that may have it open have closed it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def gone() -> None:  # in a finaliser, in any thread
            with suppress(RuntimeError):  # the server ends
                loop.call_soon_threadsafe(_finish, future)

        self._gone.then(gone)
        await future


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():  # else it was cancelled, with who waits
        future.set_result(None)


def closing(devices: Devices, device: int, unclosed: Sequence[Unclosed]) -> Closing:
    """Nobody here refers to the memory any more: it is closed when its GPU has done so.

    unclosed: of each DeviceMemory that there is by then.
    """
    done = asyncio.ensure_future(_closed(devices, device))
    return Closing(done, partial(devices.waits, device), partial(_texts, unclosed), list)


def closings(devices: Devices, removed: Iterable[Removed]) -> Iterator[tuple[str, Closing]]:
    """Of regions that are none any more, by name.  Those of a GPU that nobody uses are waited for together."""
    idle: dict[int, asyncio.Future[None]] = {}
    for each in removed:
        done: asyncio.Future[None]
        if each.is_used:
            done = asyncio.ensure_future(_closed(devices, each.device, each))
        else:
            if each.device not in idle:
                idle[each.device] = asyncio.ensure_future(_closed(devices, each.device))
            done = idle[each.device]
        yield each.name, Closing(done, partial(each.waits, devices), partial(_texts, [each.unclosed]), each.lingering)


async def _closed(devices: Devices, device: int, used: Removed | None = None) -> None:
    if used is not None:
        await used.let_go()
    lane = devices.lane(device)
    await lane.passed()
    await lane.passed()  # until then the thread that opened the memory may have referred to it
    await devices.ready(device, None)  # it may have been lost until then, and goes with its context
    await lane.passed()


def _texts(unclosed: Sequence[Unclosed]) -> list[str]:
    return [text for each in unclosed for text in list(each.values())]


def _told_late(late: Sequence[tuple[str, Closing]], seconds: float, remedy: str) -> str:
    reasons = "; ".join(sorted({each.waits() for _, each in late}))
    return f"{named(name for name, _ in late)} unregistered, but not closed within {seconds:g} s{remedy}: {reasons}"


def _also_lingering(late: Sequence[tuple[str, Closing]]) -> str:
    """Behind "when it has ended": the server's end is not the end of a process that was killed."""
    lingering = sorted({text for _, each in late for text in each.lingering()})
    return f", and {_first(lingering)}, {NOT_ENDED}, has, too" if lingering else ""


def _told_refused(refusals: Iterable[str]) -> str:
    """Who refuses to close it, and what ends these processes."""
    texts = sorted(refusals)
    lingering = [each for each in texts if isinstance(each, LingeringRefusal)]
    shown = texts[: limits.GPU_REFUSALS_TOLD_MAX]
    where = ", in ".join(shown) + _and_others(len(texts) - len(shown) + 1)
    remedies = []
    if len(lingering) < len(texts):
        remedies.append("end the server, or unload the model of an instance")
    if lingering:
        remedies.append(f"what was killed and has not ended does not end by an unload, nor with the server. {HANGS}")
    return (
        f"the driver refuses that in {where}. Do not free the memory before these processes have ended: "
        + "; ".join(remedies)
    )


def _first(of: Sequence[str]) -> str:
    return f"{of[0]}{_and_others(len(of))}"


def named(names: Iterable[str]) -> str:
    """The first of them, and how many others there are."""
    found = list(dict.fromkeys(names))
    return f"shared memory region '{found[0]:.60}'{_and_others(len(found))}"


def _and_others(count: int) -> str:
    return "" if count == 1 else " and 1 other" if count == 2 else f" and {count - 1} others"
