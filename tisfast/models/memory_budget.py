"""--model-memory-budget: models unused for longest sleep while others need the memory.  Layer 4 (models).

`decide` is the rule, without clock, processes or files; `MemoryBudget` looks at the workers and does what it says.
A sleeping model has no workers; it is ready all the same, and its first request waits in the queue while they start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tisfast import tuning
from tisfast.processes.worker_memory import measured

log = logging.getLogger("tisfast.models")


Key = TypeVar("Key")


@dataclass(frozen=True)
class Account(Generic[Key]):
    """One model version as the rule sees it.

    nbytes: what its workers take, or took when they were last awake; used: when it was last used, of any clock; awake:
    its workers run, or begin to; free: it may be put to sleep now.
    """

    key: Key
    nbytes: int
    used: float
    awake: bool
    free: bool


@dataclass(frozen=True)
class BudgetDecision(Generic[Key]):
    """The decision.

    sleep: versions to put to sleep; over: bytes above the budget that remain; too_large: versions that take
    more than the budget alone, and are left out of it.
    """

    sleep: tuple[Key, ...]
    over: int
    too_large: tuple[Key, ...]


def decide(accounts: Iterable[Account[Key]], budget: int) -> BudgetDecision[Key]:
    """Choose versions to sleep so that all that are awake take at most `budget` bytes: longest unused first.

    No version sleeps for nothing: when all together would not be enough, none does; and who was unused for less long
    than another is spared where the others are enough without it.
    """
    awake = [each for each in accounts if each.awake]
    too_large = tuple(each.key for each in awake if each.nbytes > budget)
    counted = [each for each in awake if each.nbytes <= budget]
    over = sum(each.nbytes for each in counted) - budget
    free = sorted((each for each in counted if each.free and each.nbytes), key=lambda each: each.used)
    if over <= 0 or sum(each.nbytes for each in free) < over:
        return BudgetDecision((), max(over, 0), too_large)
    chosen: list[Account[Key]] = []
    for each in free:
        if over > 0:
            chosen.append(each)
            over -= each.nbytes
    for each in chosen[::-1]:
        if over + each.nbytes <= 0:
            chosen.remove(each)
            over += each.nbytes
    return BudgetDecision(tuple(each.key for each in chosen), 0, too_large)


class Sleeper(Protocol):
    """The face of a model version that the budget uses (models/served_model.py).  Hashable by identity."""

    @property
    def title(self) -> str:
        """NAME version N."""

    @property
    def used_ms(self) -> int:
        """When it was last used, or woken; epoch."""

    @property
    def may_sleep(self) -> bool:
        """It is awake, has nothing to do, and nothing would be lost."""

    @property
    def asleep(self) -> bool:
        """It has no workers, or will have none in a moment, because of `sleep`."""

    @property
    def pids(self) -> Collection[int]:
        """Its workers."""

    async def sleep(self, wanted: Callable[[], None]) -> None:
        """End its workers.  wanted: called by each request that comes from now on, until `wake`."""

    def wake(self) -> Awaitable[None]:
        """Start them again: awake at once; to be awaited until it serves, or cannot."""


@dataclass
class _Entry:
    """The record of one model version."""

    nbytes: int = 0
    sleeps: int = 0
    wakes: int = 0
    wake_seconds: float = 0.0
    told: bool = False
    rousing: asyncio.Task[None] | None = None


Measure = Callable[[Mapping[Sleeper, Collection[int]]], Mapping[Sleeper, int]]


class MemoryBudget:
    """Looks at the workers' memory at intervals, and when a sleeping model is asked.  Event-loop thread only."""

    def __init__(
        self,
        nbytes: int,
        sleepers: Callable[[], Iterable[Sleeper]],
        loop: asyncio.AbstractEventLoop,
        announce: Callable[[Sleeper, str], None],
        measure: Measure = measured,
    ) -> None:
        """nbytes: the budget; sleepers: all model versions that have workers, or would; announce: what the index says
        of one, "" when it is awake; measure: called in a thread.
        """
        self._nbytes = nbytes
        self._sleepers = sleepers
        self._loop = loop
        self._announce = announce
        self._measure = measure
        self._entries: dict[Sleeper, _Entry] = {}
        self._turn = asyncio.Lock()  # one decision at a time, until what it puts to sleep has ended
        self._over = False
        self._closed = False
        self._looker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on."""
        self._looker = self._loop.create_task(self._look_for_ever(), name="memory budget")

    async def close(self) -> None:
        """Look no more, and wake no model."""
        self._closed = True
        tasks = [entry.rousing for entry in self._entries.values() if entry.rousing is not None]
        tasks += [self._looker] if self._looker is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def readings(self) -> list[tuple[Sleeper, dict[str, float]]]:
        """For metrics, by the ends of their names; memory as of the last look."""
        return [
            (
                each,
                {
                    "memory_bytes": 0 if each.asleep else entry.nbytes,
                    "asleep": each.asleep,
                    "sleeps": entry.sleeps,
                    "wakes": entry.wakes,
                    "wake_seconds": entry.wake_seconds,
                },
            )
            for each, entry in self._entries.items()
        ]

    async def look(self) -> None:
        """Measure, and put to sleep the versions that must."""
        pids = {each: tuple(each.pids) for each in self._sleepers() if not each.asleep}
        sizes = await self._loop.run_in_executor(None, self._measure, pids)
        for gone in self._entries.keys() - set(self._sleepers()):
            del self._entries[gone]
        for each, nbytes in sizes.items():
            if not each.asleep:
                self._entry(each).nbytes = nbytes
        async with self._turn:
            await self._make_room()

    async def _look_for_ever(self) -> None:
        while True:
            began = self._loop.time()
            try:
                await self.look()
            except Exception as error:  # a bug of ours must not end the budget
                log.critical("looking at the models' memory failed", exc_info=error)
            took = self._loop.time() - began
            await asyncio.sleep(max(tuning.MEMORY_LOOK_SECONDS, took * tuning.MEMORY_LOOK_SHARE))

    async def _make_room(self, coming: Sleeper | None = None) -> None:
        """coming: a version that is about to wake, and counts as if it were awake.  With the turn."""
        accounts = [self._account(each, coming) for each in self._sleepers()]
        verdict = decide(accounts, self._nbytes)
        self._tell(verdict)
        taken = sum(each.nbytes for each in accounts if each.awake)
        await asyncio.gather(*(self._put_to_sleep(each, taken) for each in verdict.sleep))

    def _account(self, each: Sleeper, coming: Sleeper | None) -> Account[Sleeper]:
        awake = each is coming or not each.asleep
        return Account(each, self._entry(each).nbytes, each.used_ms, awake, each is not coming and each.may_sleep)

    async def _put_to_sleep(self, each: Sleeper, taken: int) -> None:
        if not each.may_sleep:
            return  # a request has come since that was decided; the next look decides anew
        entry = self._entry(each)
        entry.sleeps += 1
        log.info(
            "%s is put to sleep: all models take %s of --model-memory-budget %s, and it was unused for longest; %s are "
            "free when its workers have ended, and its next request wakes it",
            each.title, amount(taken), amount(self._nbytes), amount(entry.nbytes),
        )  # fmt: skip
        self._announce(each, f"asleep: --model-memory-budget {amount(self._nbytes)} was exceeded; a request wakes it")
        await each.sleep(lambda: self._wanted(each))

    def _wanted(self, each: Sleeper) -> None:
        """A request has come for a sleeping model."""
        entry = self._entry(each)
        if entry.rousing is None and not self._closed:
            entry.rousing = self._loop.create_task(self._rouse(each), name=f"wake {each.title}")
            entry.rousing.add_done_callback(lambda task: self._roused(entry, task))

    async def _rouse(self, each: Sleeper) -> None:
        began = self._loop.time()
        async with self._turn:
            await self._make_room(each)
            waking = each.wake()
        await waking
        self._announce(each, "")
        if not each.pids:
            return  # it could not be started, which the log has, or was unloaded meanwhile
        entry = self._entry(each)
        entry.wakes += 1
        entry.wake_seconds += self._loop.time() - began
        log.info("%s was woken by a request within %.3f s", each.title, self._loop.time() - began)

    def _roused(self, entry: _Entry, task: asyncio.Task[None]) -> None:
        entry.rousing = None
        if not task.cancelled() and task.exception() is not None:
            log.critical("a sleeping model could not be woken", exc_info=task.exception())

    def _entry(self, each: Sleeper) -> _Entry:
        return self._entries.setdefault(each, _Entry())

    def _tell(self, verdict: BudgetDecision[Sleeper]) -> None:
        """Log once what the budget cannot solve, and again only after it was solved."""
        for each in verdict.too_large:
            entry = self._entries[each]
            if not entry.told:
                entry.told = True
                log.warning(
                    "%s takes %s by itself, more than --model-memory-budget %s: it is left out of the budget, and "
                    "never put to sleep", each.title, amount(entry.nbytes), amount(self._nbytes),
                )  # fmt: skip
        if verdict.over and not self._over:
            log.warning(
                "models take %s more than --model-memory-budget %s, and those that have requests are too large for it: "
                "nobody else is put to sleep for that", amount(verdict.over), amount(self._nbytes),
            )  # fmt: skip
        self._over = verdict.over > 0


def amount(nbytes: int) -> str:
    """Bytes as a person reads them."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= size:
            return f"{nbytes / size:.1f} {unit}"
    return f"{nbytes >> 10} KiB"
