"""Models come, change and go while the server runs.  Layer 4 (models).

What is to be done is worked out by repo.load_plan, and done by models.copies: new copies are loaded and warmed up
beside those that serve; then, in one turn of the loop, the names are pointed at the new ones, and the old ones are
left to drain (models.draining).  Each change holds the locks of all names that it may touch: changes of
one model follow each other, those of others run beside them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from tisfast import limits
from tisfast.config.error_report import ConfigErrors
from tisfast.errors import BadRequest, Internal, TisError, Unavailable
from tisfast.models.copies import Copies, LoadFailure, is_of_load, reason_of, say_failed, tried, words_of
from tisfast.models.loader import gather
from tisfast.models.name_locks import NameLocks
from tisfast.repo.load_override import LoadOrder
from tisfast.repo.load_plan import Action, Found, Order, above, closure, plan
from tisfast.repo.lookup import NoModel, no_model
from tisfast.repo.model_names import Names
from tisfast.repo.scan_result import ModelSource

if TYPE_CHECKING:
    from tisfast.engine.registry import Registry

T = TypeVar("T")
NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"
"""Triton's text where its control mode is not EXPLICIT."""
STOPPING = "Server is stopping, models are neither loaded nor unloaded any more"


Find = Callable[[Collection[str]], Mapping[str, Found]]
"""Looks up names on the disk.  Reads files: called in a thread."""
Give = Callable[[LoadOrder], Found]
"""The model of an order that does not go by the disk, or what is wrong with it.  Writes files: called in a thread."""

Refresh = Callable[[Collection[str]], Awaitable[Mapping[str, TisError]]]
"""Make local folders of these names equal to what remote repositories have; returns what could not be had."""


def _nobody(_name: str) -> None:
    """The progress is not shown."""


def _anything(_name: str) -> str:
    """No name is a guest's."""
    return ""


class Lifecycle:
    """Loads, changes and unloads the models of a server.  Event-loop thread only."""

    def __init__(  # noqa: PLR0913 - its parts
        self,
        loop: asyncio.AbstractEventLoop,
        registry: Registry,
        copies: Copies,
        find: Find,
        give: Give,
        present: Callable[[], Collection[str]],
        *,
        explicit: bool,
        names: Names | None = None,
    ) -> None:
        """present: names of all models that the repositories have now, read from the disk, so called in a thread;
        explicit: models are loaded and unloaded by order (--model-control-mode=explicit); names: what they mean.
        `why_not` may be set: why a name can be neither loaded nor unloaded here, "" where it can.
        """
        self.explicit = explicit
        self._names = names if names is not None else Names()
        self.why_not: Callable[[str], str] = _anything
        self._refresh: Refresh | None = None
        self._loop = loop
        self._registry = registry
        self._copies = copies
        self._find = find
        self._give = give
        self._present = present
        self._locks = NameLocks()
        self._orders: set[asyncio.Task[Any]] = set()
        self._around: asyncio.Future[Collection[str]] | None = None
        self._stopping = False

    @property
    def busy(self) -> bool:
        """Whether something is being loaded, changed or unloaded."""
        return bool(self._orders)

    @property
    def failing(self) -> Collection[str]:
        """Models whose last load failed while it was under way: another attempt may succeed."""
        return self._copies.failing

    async def start(self, found: Mapping[str, Found], step: Callable[[str], None]) -> Collection[str]:
        """Load all that was found at the start, each model by itself; returns the names of those that failed.

        step: called with each name when it is done.
        """
        return await self._ordered(self._change(Order(wanted=frozenset(found)), found, step))

    async def load(self, order: LoadOrder) -> None:
        """Until the model serves as the disk, or the order, says.  Raises TisError with Triton's words."""
        self._check_explicit()
        await self._ordered(self._load(order))

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """Until no new request finds the model; those that it has are still answered.

        Names that are not loaded are accepted.  dependents: with an ensemble go its steps, also those that were
        loaded by themselves, unless another ensemble needs them.
        """
        self._check_explicit()
        if (why := self.why_not(name)) != "":
            raise BadRequest(f"failed to unload '{name}': {why}")
        meant = frozenset(self._names.held(name, self._copies.held()))
        order = Order(unwanted=meant, dependents=dependents)
        await self._ordered(self._change(order, {}))

    async def apply(self, names: Collection[str]) -> Mapping[str, LoadFailure]:
        """The disk may have changed there: load what is new or different, unload what is gone.  Returns what failed.

        Never raises for one model's sake: what is wrong with it is in the log and in the index.
        """
        return await self._ordered(self._apply(frozenset(names)))

    async def together(self, names: Iterable[str]) -> list[frozenset[str]]:
        """The names by what hangs together: applied one by one, a slow or broken model holds up no other.

        With namespaces, ensembles are added that may now be made of others.
        """
        given = frozenset(names)
        wanted = frozenset(self._names.affected(given, self._sources({})))
        if wanted != given:
            return [wanted]
        sources = self._sources(await self._looked(wanted))
        left = set(wanted)
        groups = []
        while left:
            first = {left.pop()}
            while (more := closure(above(first, sources), sources)) != first:
                first = more
            groups.append(frozenset(first & wanted))
            left -= first
        return groups

    async def look_around(self) -> None:
        """Learn which models the repositories have by now, for the index: there may be folders of models that were
        never asked for.
        """
        if self._around is None:
            self._around = self._loop.run_in_executor(None, self._present)
            self._around.add_done_callback(self._looked_around)
        await asyncio.wait({self._around})

    def _looked_around(self, around: asyncio.Future[Collection[str]]) -> None:
        self._around = None
        if not around.cancelled() and around.exception() is None:
            self._registry.know(around.result())
        # else a repository cannot be read: the names stay those that are known, and loads and polls tell why

    async def stop(self) -> None:
        """Give up what is being loaded, and take no further orders."""
        self._stopping = True
        orders = list(self._orders)
        for task in orders:
            task.cancel()
        await asyncio.gather(*orders, return_exceptions=True)

    def fetch_with(self, refresh: Refresh) -> None:
        """Some repository is not local: ordered models are fetched before they are looked at."""
        self._refresh = refresh

    async def fetch(self, names: Iterable[str]) -> Mapping[str, TisError]:
        """Have models, and all that they need at any depth, fetched; returns what could not be had."""
        if self._refresh is None:
            return {}
        wanted, done = frozenset(names), set[str]()
        sources: dict[str, ModelSource | None] = {}
        failed: dict[str, TisError] = {}
        while missing := closure(wanted, sources) - done:
            failed.update(await self._refresh({self._names.plain(name) for name in missing}))
            done |= missing
            lying = await self._loop.run_in_executor(None, self._lying, missing)
            wanted, done = wanted | lying, done | lying
            sources.update(self._sources(await self._looked(lying)))
        return failed

    def _lying(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(each for name in names for each in self._names.lying(name))

    @asynccontextmanager
    async def kept_from(self, name: str) -> AsyncIterator[None]:
        """While a model that is no repository's gets a name.  Raises BadRequest where a repository has it."""
        async with self._locks.all_of({name}):
            present = await self._loop.run_in_executor(None, self._present)
            if name in present or name in self._copies.held():
                raise BadRequest(f"model '{name}' is in a model repository of this server; choose another name")
            yield

    # ---- orders

    def _check_explicit(self) -> None:
        if not self.explicit:
            raise Unavailable(NOT_EXPLICIT)

    async def _ordered(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it to its end, whatever becomes of the caller; only the end of the server stops it."""
        if self._stopping:
            work.close()
            raise Unavailable(STOPPING)
        task = self._loop.create_task(work)
        self._orders.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._stopping and task.cancelled():
                raise Unavailable(STOPPING) from None
            raise

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._orders.discard(task)
        if not task.cancelled():
            task.exception()  # who asked may be gone; what fails is in the log and the index by now

    async def _load(self, order: LoadOrder) -> None:
        absent = await self.fetch([order.name])
        if absent:
            raise next(iter(absent.values()))
        order, names = await self._meant(order)
        forced = names if order.force else frozenset()
        given = await self._given(order)
        try:
            failed = await self._change(Order(wanted=names, forced=forced), given)
        except TisError:
            self._copies.discard(given.get(order.name))
            raise
        for name in sorted(names & failed.keys()):
            self._copies.discard(given.get(name))
            raise load_failed(name, failed[name])

    async def _meant(self, order: LoadOrder) -> tuple[LoadOrder, frozenset[str]]:
        """The models to load.  Raises BadRequest for a configuration that could be that of several."""
        if order.files or not self._names.namespaced:  # at once: orders are carried out as they come
            return order, frozenset({order.name})
        names = frozenset(await self._loop.run_in_executor(None, self._names.lying, order.name))
        if order.config is None:
            return order, names
        if len(names) > 1:
            raise BadRequest(
                f"load failed for model '{order.name}': there are {len(names)} of that name in namespaces "
                f"({', '.join(sorted(names))}), and 'config' is for one"
            )
        return replace(order, name=next(iter(names))), names

    async def _given(self, order: LoadOrder) -> dict[str, ModelSource]:
        """The sources that an order gives in place of the disk's.  Raises TisError."""
        if not order.overrides:
            return {}
        found = await self._loop.run_in_executor(None, self._give, order)
        if isinstance(found, ModelSource):
            return {order.name: found}
        error = found if isinstance(found, TisError) else ConfigErrors(found.errors, found.versions)
        say_failed(order.name, None, error)
        if self._registry.versions(order.name):  # which go on
            self._registry.fail(order.name, [""], reason_of(error))
        raise load_failed(order.name, LoadFailure(error, tried(error))) if is_of_load(error) else error

    async def _apply(self, names: frozenset[str]) -> Mapping[str, LoadFailure]:
        names -= self._copies.given().keys()  # those do not go by the disk
        found = await self._looked(names)
        gone = frozenset(name for name in names if isinstance(found[name], NoModel))
        order = Order(wanted=names - gone, unwanted=gone & self._copies.held().keys())
        return await self._change(order, {}, disk=names)

    # ---- changes

    async def _change(
        self,
        order: Order,
        given: Mapping[str, Found],
        step: Callable[[str], None] = _nobody,
        disk: frozenset[str] | None = None,
    ) -> dict[str, LoadFailure]:
        """Work out what to do, with the locks of all that it may touch, and do it.  Returns what failed, by name.

        disk: models that may be looked for there, None for all; others are as they were.
        """
        names = self._involved(order, given)
        for _ in range(limits.PLAN_ROUNDS_MAX):
            async with self._locks.all_of(names):
                found = await self._look_at(order.wanted, given, disk)
                taken = {name: why for name in order.wanted if (why := self.why_not(name)) != ""}
                found.update((name, BadRequest(why)) for name, why in taken.items())
                involved = self._involved(order, found)
                if involved <= names:
                    return await self._carry_out(order, found, step)
            names |= involved
        raise Unavailable(
            f"the ensembles around {', '.join(sorted(order.wanted | order.unwanted))} kept changing while they were "
            "looked at; try again"
        )

    async def _carry_out(
        self, order: Order, found: Mapping[str, Found], step: Callable[[str], None]
    ) -> dict[str, LoadFailure]:
        planned = plan(self._copies.held(), found, order)
        self._copies.set_explicit(planned.explicit)
        failed: dict[str, LoadFailure] = {}

        async def one(group: tuple[Action, ...]) -> None:
            failed.update(await self._copies.carry_out(group))
            for action in group:
                step(action.name)

        await gather(*(one(group) for group in planned.groups))
        touched = {action.name for group in planned.groups for action in group}
        self._copies.confirm(order.wanted - touched)
        return failed

    def _involved(self, order: Order, found: Mapping[str, Found]) -> set[str]:
        """All names that an order may touch: what it names, the steps below and the ensembles above those."""
        sources = self._sources(found)
        return above(closure(order.wanted | order.unwanted, sources), sources)

    def _sources(self, found: Mapping[str, Found]) -> dict[str, ModelSource | None]:
        sources = {name: held.source for name, held in self._copies.held().items()}
        sources.update((name, each) for name, each in found.items() if isinstance(each, ModelSource))
        return sources

    async def _look_at(
        self, names: Iterable[str], given: Mapping[str, Found], disk: frozenset[str] | None
    ) -> dict[str, Found]:
        """Look up these names and all that they need, at any depth.

        A step that a load call gave stays what it is: only a load of itself takes it back to the disk.
        """
        found: dict[str, Found] = dict(given)
        while missing := closure(names, self._sources(found)) - found.keys():
            kept = self._copies.given()  # of these alone: nobody holds the locks of others, which change meanwhile
            found.update((name, kept[name]) for name in missing & kept.keys() - set(names))
            missing -= found.keys()
            found.update(await self._looked(missing if disk is None else missing & disk))
            found.update((name, self._as_held(name)) for name in missing - found.keys())
        return found

    def _as_held(self, name: str) -> Found:
        """The model as it is served: files that polling has not seen at rest may be in the middle of being copied."""
        held = self._copies.held().get(name)
        return held.source if held is not None and held.source is not None else no_model(name)

    async def _looked(self, names: Collection[str]) -> Mapping[str, Found]:
        return await self._loop.run_in_executor(None, self._find, names)


def load_failed(name: str, failure: LoadFailure) -> TisError:
    """The error that a load call gets.  Beyond Triton's words: what is wrong with a configuration.

    Internal, which clients take to be worth another try, is for what could not be read.
    """
    error = failure.error
    if isinstance(error, NoModel):
        return error
    if isinstance(error, ConfigErrors) and not error.at_load:
        return Internal(f"failed to load '{name}', failed to poll from model repository: {error}")
    if not failure.versions:
        return BadRequest(f"load failed for model '{name}': {words_of(error, error.message)}\n")
    reason = reason_of(error)
    told = "".join(f"version {version} is at UNAVAILABLE state: {reason};" for version in failure.versions)
    return BadRequest(f"load failed for model '{name}': {told}\n")
