"""Which copies of models serve, and how what a plan says of them is carried out.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tisfast import limits
from tisfast.config.error_report import ConfigErrors
from tisfast.errors import ConfigError, Internal, TisError
from tisfast.models.loader import gather
from tisfast.models.served_ensemble import ServedEnsemble
from tisfast.models.served_model import ServedModel
from tisfast.processes.worker import WorkerFailed
from tisfast.repo.dependencies import dependencies
from tisfast.repo.load_plan import Act, Action, WantedModel
from tisfast.repo.scan import NotUnique
from tisfast.repo.scan_result import ModelSource, VersionSource
from tisfast.types import STATUS_CODES

if TYPE_CHECKING:
    from tisfast.config.instance_groups import PlannedInstance
    from tisfast.engine.registry import Registry
    from tisfast.models.draining import DrainingCopies

log = logging.getLogger("tisfast.models")
Served: TypeAlias = "ServedModel | ServedEnsemble"
REPLACED = (
    "this copy of the model was replaced or unloaded, and this request has outlasted the time that it had for that; "
    "send it again"
)


class CopyMaker(Protocol):
    """Makes copies (models.loader, models.ensemble)."""

    async def load(self, source: ModelSource, versions: Sequence[VersionSource]) -> Sequence[Served]:
        """These versions, loaded and warmed up, or none of them.  Raises TisError."""

    def join(self, source: ModelSource) -> Sequence[Served]:
        """All versions of an ensemble, joined to what the registry has of its steps now.  Raises TisError."""

    def discard(self, source: ModelSource) -> None:
        """Nothing that was loaded from this source is left: files of a load call may go."""


@dataclass(frozen=True)
class LoadFailure:
    """A failed load or change of a model.

    versions: those that failed while they were loaded; none when it did not come to that.
    """

    error: TisError
    versions: tuple[str, ...] = ()


@dataclass(eq=False)
class Copy:
    """The state of one wanted model.

    source: of what serves, or would; explicit: wanted for itself; served: by version, empty while nothing is.
    """

    name: str
    explicit: bool = True
    source: ModelSource | None = None
    served: dict[int, Served] = field(default_factory=dict)

    @property
    def held(self) -> WantedModel:
        """The model as plans see it."""
        return WantedModel(self.source, self.explicit, bool(self.served))


class Copies:
    """All of them.  Event-loop thread only."""

    def __init__(self, registry: Registry, maker: CopyMaker, leaving: DrainingCopies, retries: int) -> None:
        """retries: of each load that fails (--model-load-retry-count)."""
        self._registry = registry
        self._maker = maker
        self._leaving = leaving
        self._retries = retries
        self._copies: dict[str, Copy] = {}
        self._failing: set[str] = set()

    @property
    def served(self) -> list[Served]:
        """Model versions that new requests find."""
        return [served for copy in self._copies.values() for served in copy.served.values()]

    @property
    def failing(self) -> frozenset[str]:
        """Models whose last load failed while it was under way, and not for what its files say."""
        return frozenset(self._failing)

    def held(self) -> dict[str, WantedModel]:
        """The models as plans see them, by name."""
        return {name: copy.held for name, copy in self._copies.items()}

    def given(self) -> dict[str, ModelSource]:
        """Models that serve as a load call said, not as the disk says, by name."""
        serving = {name: copy.source for name, copy in self._copies.items() if copy.served}
        return {name: source for name, source in serving.items() if source is not None and source.overridden}

    def of(self, name: str, version: str) -> Served | None:
        """The runtime that serves a version, None when none does."""
        copy = self._copies.get(name)
        return copy.served.get(int(version)) if copy is not None else None

    def set_explicit(self, names: frozenset[str]) -> None:
        """Exactly these are wanted for themselves."""
        for name, copy in self._copies.items():
            copy.explicit = name in names

    def discard(self, source: ModelSource | None) -> None:
        """A load from this source has failed, or was not even tried."""
        if source is not None:
            self._maker.discard(source)

    def clear(self) -> list[Served]:
        """At the end: hold nothing any more; what served until now."""
        served = self.served
        self._copies.clear()
        return served

    def confirm(self, names: Iterable[str]) -> None:
        """They were looked at and are as they should be: what the index says of earlier attempts is over."""
        for name in names:
            self._failing.discard(name)
            copy = self._copies.get(name)
            if copy is not None and copy.served:
                self._registry.switch(name, [served.runtime for served in copy.served.values()])

    async def carry_out(self, actions: Sequence[Action]) -> dict[str, LoadFailure]:
        """One group of a plan: make what must be made, then switch to it in one turn of the loop.

        Returns what failed, by name.
        """
        making = [action for action in actions if action.act in (Act.LOAD, Act.CHANGE) and not _is_ensemble(action)]
        for action in making:
            self._announce(action)
        made: dict[str, Sequence[Served] | TisError] = {}
        try:
            await gather(*(self._make(action, made) for action in making))
        except BaseException:  # the server stops
            await stop_all(served for each in made.values() if not isinstance(each, TisError) for served in each)
            raise
        return self._settle(actions, made)

    # ---- what is made

    def _announce(self, action: Action) -> None:
        assert action.source is not None
        fresh = action.change.fresh if action.change is not None else action.source.versions
        serving = self._copies[action.name].served if action.name in self._copies else {}
        for version in fresh:
            if version.number not in serving:
                self._registry.declare(action.name, str(version.number), "LOADING")

    async def _make(self, action: Action, made: dict[str, Sequence[Served] | TisError]) -> None:
        for attempt in range(self._retries + 1):
            try:
                made[action.name] = await self._attempt(action)
                return
            except TisError as error:
                # Its frames refer to what has failed, whose memory is not to wait for the garbage collector.
                made[action.name] = error.with_traceback(None)
                if attempt < self._retries:
                    say_failed(action.name, action.source, error)
                    log.info("loading '%s' again (--model-load-retry-count)", action.name)
            except Exception as error:  # a bug of ours is this model's failure, not everybody's
                log.critical("loading '%s' met a bug of the server", action.name, exc_info=error)
                made[action.name] = _our_bug(error)
                return

    async def _attempt(self, action: Action) -> Sequence[Served]:
        """Load the fresh versions, and start the instances that kept ones lack.  All or nothing."""
        assert action.source is not None
        if action.change is None:
            return await self._maker.load(action.source, action.source.versions)
        fresh = await self._maker.load(action.source, action.change.fresh) if action.change.fresh else []
        if action.change.resized:
            try:
                await self._grow(self._kept(action), action.source)
            except BaseException:
                await stop_all(fresh)
                raise
        return fresh

    async def _grow(self, kept: Iterable[ServedModel], source: ModelSource) -> None:
        grown: list[tuple[ServedModel, tuple[PlannedInstance, ...]]] = []
        try:
            for served in kept:
                before = served.planned
                await served.grow(source.config.instances)
                grown.append((served, before))
        except BaseException:
            for served, before in grown:
                self._shrink(served, before)
            raise

    def _kept(self, action: Action) -> list[ServedModel]:
        served = self._copies[action.name].served
        assert action.change is not None
        kept = [served[version.number] for version in action.change.kept]
        return [each for each in kept if isinstance(each, ServedModel)]

    # ---- the switch

    def _settle(
        self, actions: Sequence[Action], made: Mapping[str, Sequence[Served] | TisError]
    ) -> dict[str, LoadFailure]:
        """Point all names at what is made for them.  Nothing is awaited here, so half of it is never seen."""
        failed: dict[str, LoadFailure] = {}
        for action in actions:
            self._failing.discard(action.name)
            if action.act is Act.UNLOAD:
                self._unload(action.name)
                continue
            result = action.error or made.get(action.name) or self._join(action)
            if isinstance(result, TisError):
                failed[action.name] = LoadFailure(result, _versions_that_failed(action, result, action.name in made))
                self._failing |= {action.name} if action.name in made else set()
                self._fail(action, result)
            else:
                self._switch(action, result)
        return failed

    def _join(self, action: Action) -> Sequence[Served] | TisError:
        """An ensemble's runtimes, over the steps that this very plan has just switched to."""
        if not _is_ensemble(action):
            return ()  # a change without fresh versions
        assert action.source is not None
        return self._joined(action.source)

    def _joined(self, ensemble: ModelSource) -> Sequence[Served] | TisError:
        try:
            return self._maker.join(ensemble)
        except TisError as error:
            return error
        except Exception as error:  # a bug of ours must not end a switch halfway
            log.critical("joining '%s' met a bug of the server", ensemble.name, exc_info=error)
            return _our_bug(error)

    def _switch(self, action: Action, fresh: Sequence[Served]) -> None:
        assert action.source is not None
        copy = self._copies.setdefault(action.name, Copy(action.name))
        copy.explicit = action.explicit
        served: dict[int, Served] = {}
        if action.change is not None:
            for version in action.change.kept:
                served[version.number] = copy.served[version.number]
            if action.change.restated:
                for kept in self._kept(action):
                    kept.restate(action.source.config.as_dict)
                    self._shrink(kept, action.source.config.instances)
        served.update(_by_version(fresh))
        self._replace(copy, served, action.source)
        log.info("successfully loaded '%s'", action.name, extra={"facts": {"model": action.name}})

    def _replace(self, copy: Copy, served: dict[int, Served], source: ModelSource) -> None:
        """Point a name at other copies; counters go on, and what is not among them may go."""
        old, copy.served = copy.served, served
        leaving = {number: each for number, each in old.items() if served.get(number) is not each}
        for number in leaving.keys() & served.keys():
            served[number].runtime.count_on_from(leaving[number].runtime)
        before, copy.source = copy.source, source
        self._registry.switch(copy.name, [each.runtime for each in served.values()])
        self._let_go(leaving.values(), before if before is not source else None)

    def _unload(self, name: str) -> None:
        copy = self._copies.pop(name)
        self._registry.switch(name, [])
        self._let_go(copy.served.values(), copy.source)

    def _fail(self, action: Action, error: TisError) -> None:
        """Note a failure.  The serving copy goes on; an ensemble, if its steps do, or if it can be joined to the new
        ones as it was.
        """
        say_failed(action.name, action.source, error)
        if action.name not in self._copies and not isinstance(error, (ConfigError, ConfigErrors)) and action.error:
            return  # there is no such model: nothing to hold, and names are what clients like
        copy = self._copies.setdefault(action.name, Copy(action.name))
        copy.explicit = action.explicit
        if copy.served and not self._is_current(copy) and not self._is_joined_anew(copy):
            old, copy.served = copy.served, {}
            self._registry.switch(action.name, [])
            self._let_go(old.values(), copy.source)
            if self._lost_a_step(copy):
                return  # by order: as good as unloaded itself
        if not copy.served:  # what a load call gave is tried once: its files go
            copy.source = copy.source if action.source is None or action.source.overridden else action.source
        versions = _versions_tried(action.source, error)
        self._registry.fail(action.name, versions, _index_reason(error), read=action.error is None or is_of_load(error))

    def _is_joined_anew(self, copy: Copy) -> bool:
        assert copy.source is not None
        joined = self._joined(copy.source)
        if isinstance(joined, TisError):
            return False
        self._replace(copy, _by_version(joined), copy.source)
        return True

    def _lost_a_step(self, copy: Copy) -> bool:
        steps = dependencies(copy.source) if copy.source is not None else ()
        return any(step not in self._copies for step in steps)

    def _is_current(self, copy: Copy) -> bool:
        current = {id(runtime) for runtime in self._registry.runtimes()}
        return all(id(runtime) in current for served in copy.served.values() for runtime in served.uses)

    def _shrink(self, served: ServedModel, planned: Sequence[PlannedInstance]) -> None:
        for instance in served.shrink(planned):
            self._leaving.begin(instance, REPLACED)

    def _let_go(self, served: Iterable[Served], source: ModelSource | None) -> None:
        """source: what they were loaded from, if nothing else was."""
        left = list(served)

        def gone(each: Served) -> None:
            left.remove(each)
            self._gone(each)
            if not left and source is not None:
                self._maker.discard(source)

        for each in tuple(left):
            self._leaving.begin(each, REPLACED, partial(gone, each))

    def _gone(self, served: Served) -> None:
        signature = served.runtime.signature
        self._registry.unloaded(signature.identity, signature.version)
        facts = {"model": signature.identity, "version": signature.version}
        log.info("successfully unloaded '%s' version %s", *facts.values(), extra={"facts": facts})


async def stop_all(served: Iterable[Served], why: str = "another part of the same load failed") -> None:
    """End copies that no request has found yet."""
    await asyncio.gather(*(each.stop(limits.WORKER_STOP_SECONDS_MAX, why) for each in served))


def is_of_load(error: TisError) -> bool:
    """Whether a model was read before it was refused."""
    return isinstance(error, ConfigError) and error.at_load


def _versions_tried(source: ModelSource | None, error: TisError) -> list[str]:
    """The version numbers as text; one "" when none is known."""
    return list(tried(error)) or versions_of(source)


def tried(error: TisError) -> tuple[str, ...]:
    """Versions that were refused with the configuration."""
    return tuple(map(str, error.versions)) if isinstance(error, ConfigErrors) else ()


def _our_bug(error: Exception) -> Internal:
    return Internal(f"unexpected {type(error).__name__} in the server; see its log")


def _by_version(served: Iterable[Served]) -> dict[int, Served]:
    return {int(each.runtime.signature.version): each for each in served}


def versions_of(source: ModelSource | None) -> list[str]:
    """The version numbers as text; one "" when none is known."""
    return [str(version.number) for version in source.versions] if source is not None else [""]


def reason_of(error: TisError) -> str:
    """The error as the index and Triton's answers give it."""
    return f"{STATUS_CODES[error.status].text}: {words_of(error, str(error))}"


def _index_reason(error: TisError) -> str:
    """The error on one line, but Triton's text where scripts compare it whole."""
    twice = isinstance(error, ConfigErrors) and any(isinstance(each, NotUnique) for each in error.errors)
    return NotUnique.TEXT if twice else reason_of(error)


def words_of(error: TisError, else_words: str) -> str:
    """The text for clients: Triton's words first where scripts read them."""
    return error.message_first if isinstance(error, ConfigError) and error.at_load else else_words


def say_failed(name: str, source: ModelSource | None, error: TisError) -> None:
    """Log a load that failed, once."""
    failed = error.facts.get("version")
    versions = _versions_tried(source, error) if failed is None else [str(failed)]
    about = f" version {', '.join(versions)}" if any(versions) else ""
    traceback = error.traceback if isinstance(error, WorkerFailed) else ""
    extra = {"facts": {"model": name}, "traceback": traceback}
    log.error("failed to load '%s'%s: %s", name, about, reason_of(error), extra=extra)


def _versions_that_failed(action: Action, error: TisError, was_tried: bool) -> tuple[str, ...]:
    if is_of_load(error):
        return tried(error)
    if not was_tried or action.source is None:
        return ()
    version = error.facts.get("version")
    fresh = action.change.fresh if action.change is not None else action.source.versions
    return (str(version),) if version is not None else tuple(str(each.number) for each in fresh)


def _is_ensemble(action: Action) -> bool:
    return action.source is not None and action.source.config.ensemble is not None
