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
from tisfast.native.cuda_faces import NOT_ENDED, By, Devices, Gone, Holder, Refusal, Unclosed, Waits
from tisfast.native.cuda_lanes import HANGS, hangs
from tisfast.native.region import DeviceFile, Region

log = logging.getLogger("tisfast.gpu")
_BY_NAME = (
    ". Who unregisters all regions is told this as long as it is so, whoever has the memory; unregister yours by their "
    "names to hear of them alone"
)

_TO_ITS_END = (
    "One whose client has left is executed to its end, and a model may keep inputs (--execution-timeout-secs ends an "
    "instance that hangs)"
)


class Closing:
    """Memory that is being closed.

    waits: says for what; unclosed: the refusals that there are when it is done; lingering: the processes that were
    killed and have not ended (Holder.lingers); is_logged: that it takes long; is_told: its refusals, to somebody.
    """

    def __init__(
        self,
        done: asyncio.Future[None],
        waits: Callable[[], Waits],
        unclosed: Callable[[], list[Refusal]],
        lingering: Callable[[], list[str]],
    ) -> None:
        self.done, self.waits, self._unclosed, self.lingering = done, waits, unclosed, lingering
        self.is_logged = self.is_told = False

    @property
    def refusals(self) -> list[Refusal]:
        """Where it stays open, now that this is done."""
        if not self.done.done() or self.done.cancelled():
            return []
        error = self.done.exception()
        return self._unclosed() if error is None else [Refusal(By.SERVER, "the server", repr(error))]


class Coming:
    """A region that is being registered.

    done: the registration; waits: says for what; closing: what it has opened in vain.
    """

    done: asyncio.Future[None]

    def __init__(self, whose: str) -> None:
        self.waits = partial(hangs, whose)
        self.closing: Closing | None = None

    def unregistered(self) -> Closing:
        """It is none any more: done when what it opens has been closed."""
        return Closing(asyncio.ensure_future(self._over()), self._waits, self._unclosed, list)

    def _unclosed(self) -> list[Refusal]:
        return [] if self.closing is None else self.closing.refusals

    def _waits(self) -> Waits:
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
        return [(name, str(one.waits())) for name, each in self._of.items() for one in each if not one.done.done()]

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
        found: set[Refusal] = set()
        for count, (name, each) in enumerate(chosen, 1):
            if refusals := each.refusals:
                refused.append(name)
                found.update(refusals)
            self._tell(name, each, refusals)
            if count % tuning.LOOP_SLICE_PIECES == 0:
                await self._turn()
        if refused:
            raise Internal(f"{named(refused)} unregistered, but not closed: {_told_refused(found)}{more}")

    async def _turn(self) -> None:
        """Others have it.  Who is told of refusals is told of them also where the server ends meanwhile."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not self._is_ended:
                raise

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

    def _tell(self, name: str, what: Closing, refusals: Sequence[Refusal]) -> None:
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

    def waits(self, devices: Devices) -> Waits:
        """For requests, instances, or its GPU."""
        if lingering := self.lingering():
            have, them = ("has", "this process has") if len(lingering) == 1 else ("have", "these processes have")
            reason = (
                f"{_listed(lingering)} {have} it open still: killed, but not ended, most likely in a call of a GPU's "
                "driver that hangs"
            )
            return Waits((reason,), (f"Free the memory when {them} ended", HANGS))
        holders = list(self._holders.values())
        names = sorted({each.name for each in holders})
        if (file := self._file()) is not None:
            return self._used(file, sorted({each.name for each in holders if each.uses(file.memory)}), names, devices)
        if not names:
            return devices.waits(self.device)
        closes = "closes" if len(names) == 1 else "close"
        reason = (
            f"{_instances(names)} had it open and {closes} it behind the batch that is executed, which takes long "
            "(--execution-timeout-secs ends one that hangs)"
        )
        return Waits((reason,), ())

    def _used(self, file: DeviceFile, users: Sequence[str], names: Sequence[str], devices: Devices) -> Waits:
        """users: the instances whose requests use it; names: those that have it open."""
        where = f" in {_instances(users)}" if users else ": they are copied, wait for a model or are executed by one"
        reasons, remedies = [f"requests use it{where}"], [_TO_ITS_END]
        if idle := [each for each in names if each not in users]:
            have, close = ("has", "closes") if len(idle) == 1 else ("have", "close")
            reasons.append(f"{_instances(idle)} only {have} it open, and {close} it after them")
        lanes = file.lane(0), devices.lane(self.device)
        if any(each.seconds >= limits.GPU_TOLD_SECONDS for each in lanes):
            hung = devices.waits(self.device)
            reasons += hung.reasons
            remedies += hung.remedies
        return Waits(tuple(reasons), tuple(remedies))

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
    return Closing(done, partial(devices.waits, device), partial(_refusals, unclosed), list)


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
        refusals = partial(_refusals, [each.unclosed])
        yield each.name, Closing(done, partial(each.waits, devices), refusals, each.lingering)


async def _closed(devices: Devices, device: int, used: Removed | None = None) -> None:
    if used is not None:
        await used.let_go()
    lane = devices.lane(device)
    await lane.passed()
    await lane.passed()  # until then the thread that opened the memory may have referred to it
    await devices.ready(device, None)  # it may have been lost until then, and goes with its context
    await lane.passed()


def _refusals(unclosed: Sequence[Unclosed]) -> list[Refusal]:
    return [refusal for each in unclosed for refusal in list(each.values())]


def _remedy(refusals: Sequence[Refusal]) -> str:
    """What the client must wait for, and how to come there whatever --model-control-mode is."""
    found = {by: len([each for each in refusals if each.by is by]) for by in By}
    instances, lingering = found[By.INSTANCE], found[By.LINGERING]
    them = "this process has" if instances + lingering == 1 else "these processes have"
    if found[By.SERVER]:
        them = "the server has" if not lingering else "the server and what was killed have"
    ways = []
    if instances and not found[By.SERVER]:
        it, models, again = ("that process by its pid", "its model", "the instance")
        if instances > 1:
            it, models, again = ("the processes of the instances by their pids", "their models", "the instances")
        ways.append(
            f"end {it} (the server then starts {again} again), unload {models} (only with "
            "--model-control-mode=explicit), or end the server"
        )
    if lingering:
        ways.append(f"what was killed and has not ended does not end by an unload, nor with the server. {HANGS}")
    return f"Do not free the memory before {them} ended" + (f": {'; '.join(ways)}" if ways else "")


def _told_late(late: Sequence[tuple[str, Closing]], seconds: float, remedy: str) -> str:
    """Each reason and each remedy once, and the regions of each reason where there are several."""
    of: dict[str, list[str]] = {}
    remedies: dict[str, None] = {}
    for name, each in late:
        waits = each.waits()
        for reason in waits.reasons:
            of.setdefault(reason, []).append(name)
        remedies.update(dict.fromkeys(waits.remedies))
    is_for_all = len({tuple(names) for names in of.values()}) == 1
    reasons = [why if is_for_all else f"{_quoted(names)}: {why}" for why, names in of.items()]
    regions = named(name for name, _ in late)
    text = f"{regions} unregistered, but not closed within {seconds:g} s{remedy}: {'; '.join(reasons)}"
    return ". ".join([text, *remedies])


def _also_lingering(late: Sequence[tuple[str, Closing]]) -> str:
    """Behind "when it has ended": the server's end is not the end of a process that was killed."""
    lingering = sorted({text for _, each in late for text in each.lingering()})
    return f", and {lingering[0]}{_and_others(len(lingering) - 1)}, {NOT_ENDED}, has, too" if lingering else ""


def _told_refused(found: Iterable[Refusal]) -> str:
    """Which processes refuse to close it, and what ends them."""
    refusals = sorted(found, key=lambda one: (one.who, one.reason))
    shown, others = refusals[: limits.GPU_REFUSALS_TOLD_MAX], len(refusals) - limits.GPU_REFUSALS_TOLD_MAX
    where = ", in ".join(f"{each.who} ({each.reason})" for each in shown) + _and_others(others)
    return f"the driver refuses that in {where}. {_remedy(refusals)}"


def _and_others(count: int) -> str:
    return "" if count <= 0 else f" and {_others(count)}"


def _others(count: int) -> str:
    return "1 other" if count == 1 else f"{count} others"


def named(names: Iterable[str]) -> str:
    """The first ones of them, and how many others there are."""
    found = list(dict.fromkeys(names))
    return f"shared memory region{'s' if len(found) > 1 else ''} {_quoted(found)}"


def _quoted(names: Sequence[str]) -> str:
    return _listed([f"'{each:.60}'" for each in dict.fromkeys(names)])


def _instances(names: Sequence[str]) -> str:
    return f"instance{'s' if len(names) > 1 else ''} {_listed(names)}"


def _listed(texts: Sequence[str]) -> str:
    """At most so many, and how many others there are."""
    shown, others = list(texts[: limits.GPU_NAMES_TOLD_MAX]), len(texts) - limits.GPU_NAMES_TOLD_MAX
    if others > 0:
        shown.append(_others(others))
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
