"""Plans loads and unloads: pure, from the wanted models and the state of the disk.  Layer 3 (repo).

A model is *held* while it is wanted: asked for by itself (explicit), or by an ensemble that is.  Whatever is done
for one model may touch the ensembles above it, which are joined to their steps anew, and the steps below it, which are
loaded with the first ensemble that needs them.  What hangs together is one group, and is switched in one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from tisfast.config.error_report import ConfigErrors
from tisfast.errors import ConfigError, TisError
from tisfast.repo.dependencies import dependencies, impossible
from tisfast.repo.difference import Change, difference
from tisfast.repo.scan_result import ModelFailure, ModelSource

Found: TypeAlias = "ModelSource | ModelFailure | TisError"
"""The result of a look at one name; an error says why there is no such model."""


@dataclass(frozen=True)
class WantedModel:
    """A model that is wanted: by itself, or by an ensemble.

    source: of what serves, or would if it could; None when it was never whole.  serving: something answers.
    """

    source: ModelSource | None
    explicit: bool
    serving: bool


@dataclass(frozen=True)
class Order:
    """A change that a call asks for.

    wanted: loaded, or brought up to date; unwanted: unloaded; forced: loaded anew even when nothing has changed;
    dependents: with the unwanted ensembles go the steps that were not asked for and no other ensemble needs.
    """

    wanted: frozenset[str] = frozenset()
    unwanted: frozenset[str] = frozenset()
    forced: frozenset[str] = frozenset()
    dependents: bool = False


class Act(Enum):
    """The kinds of steps for one model."""

    LOAD = "load"  # nothing of it serves
    CHANGE = "change"  # what serves stays until its successor does
    UNLOAD = "unload"
    REFUSE = "refuse"  # it cannot be; what serves of it goes on


@dataclass(frozen=True)
class Action:
    """One step of a plan.  source: what to load from, or cannot be loaded; change: of CHANGE; error: of REFUSE."""

    act: Act
    name: str
    explicit: bool = True
    source: ModelSource | None = None
    change: Change | None = None
    error: TisError | None = None


@dataclass(frozen=True)
class Plan:
    """groups: of what hangs together, steps before their ensembles; explicit: names that are held for themselves."""

    groups: tuple[tuple[Action, ...], ...]
    explicit: frozenset[str]


def closure(names: Iterable[str], sources: Mapping[str, ModelSource | None]) -> set[str]:
    """The names, and all that their ensembles need, at any depth."""
    seen: set[str] = set()
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        if name in seen:
            continue
        seen.add(name)
        source = sources.get(name)
        if source is not None:
            ahead += dependencies(source)
    return seen


def above(names: Iterable[str], sources: Mapping[str, ModelSource | None]) -> set[str]:
    """The names, and all ensembles that need one of them, at any height."""
    found = set(names)
    while True:
        more = {
            name
            for name, source in sources.items()
            if name not in found and source is not None and found.intersection(dependencies(source))
        }
        if not more:
            return found
        found |= more


def plan(held: Mapping[str, WantedModel], found: Mapping[str, Found], order: Order) -> Plan:
    """Make the plan.  found: the result of a look at every wanted name and all that those need, at any depth."""
    return _Planner(held, found, order).plan()


class _Planner:
    def __init__(self, held: Mapping[str, WantedModel], found: Mapping[str, Found], order: Order) -> None:
        self._held = held
        self._found = found
        self._order = order
        self._sources: dict[str, ModelSource | None] = {name: each.source for name, each in held.items()}
        self._sources.update((name, each) for name, each in found.items() if isinstance(each, ModelSource))
        self._explicit = {name for name, each in held.items() if each.explicit} | set(order.wanted)
        self._explicit -= order.unwanted
        needed = closure(order.wanted, self._sources)
        self._needed = needed - order.unwanted
        self._goal = (set(held) | self._needed) - order.unwanted
        if order.dependents:
            self._drop_dependents()

    def plan(self) -> Plan:
        actions: dict[str, Action] = {}
        refused = self._impossible()
        for name in self._ordered():
            action = self._action(name, refused, actions)
            if action is not None:
                actions[name] = action
        return Plan(_groups(list(actions.values()), self._sources), frozenset(self._explicit & self._goal))

    def _drop_dependents(self) -> None:
        """Steps below what is unloaded go, too, from above to below, unless they are wanted or needed."""
        below = closure(self._order.unwanted, self._sources) - self._explicit
        while gone := {name for name in below & self._goal if name not in self._used()}:
            self._goal -= gone

    def _used(self) -> set[str]:
        return {step for name in self._goal for step in self._steps(name)}

    def _steps(self, name: str) -> tuple[str, ...]:
        source = self._sources.get(name)
        return dependencies(source) if source is not None else ()

    def _impossible(self) -> dict[str, ConfigError]:
        """Ensembles that can never be joined: of models that do not exist, or of themselves."""
        sources = [source for name, source in self._sources.items() if source is not None and name in self._goal]
        held_away = [source for name, source in self._sources.items() if source is not None and name not in self._goal]
        failures = [each for each in self._found.values() if isinstance(each, ModelFailure)]
        found = impossible([*sources, *held_away], failures)
        return {name: error for name, error in found.items() if name in self._goal}

    def _ordered(self) -> list[str]:
        """All names that may have to do with it: ensembles that go first, then steps before what is made of them."""
        names = sorted(set(self._held) | self._goal | (set(self._order.unwanted) & set(self._held)))
        rank: dict[str, int] = {}
        for name in names:
            self._rank(name, rank, ())
        return sorted(names, key=lambda name: rank[name])

    def _rank(self, name: str, rank: dict[str, int], way: tuple[str, ...]) -> int:
        if name in way:
            return 0  # a circle, which is refused elsewhere
        if name not in rank:
            rank[name] = 1 + max((self._rank(step, rank, (*way, name)) for step in self._steps(name)), default=0)
        return rank[name]

    def _action(self, name: str, refused: Mapping[str, ConfigError], actions: Mapping[str, Action]) -> Action | None:
        explicit = name in self._explicit
        if name not in self._goal:
            return Action(Act.UNLOAD, name)
        found = self._found.get(name) if name in self._needed else None
        error = _error(found) or refused.get(name)
        if error is not None and (found is not None or self._touched(name, actions)):
            source = found if isinstance(found, ModelSource) else None
            return Action(Act.REFUSE, name, explicit, source, error=error)
        source = self._sources[name]
        if source is None:
            return None  # it failed earlier, and nobody asks for it now
        held = self._held.get(name)
        if held is None or not held.serving:
            if found is None and not self._touched(name, actions):
                return None
            return Action(Act.LOAD, name, explicit, source)
        forced = name in self._order.forced or self._touched(name, actions)
        change = difference(held.source, source, forced=forced) if held.source is not None else Change(source.versions)
        return None if change.nothing else Action(Act.CHANGE, name, explicit, source, change)

    def _touched(self, name: str, actions: Mapping[str, Action]) -> bool:
        """Whether something is done to one of an ensemble's steps, at any depth.

        An ensemble that is refused goes on as it was, and is joined anew to what its own steps are by then.
        """
        return any(
            step in actions and (actions[step].act is not Act.REFUSE or self._touched(step, actions))
            for step in self._steps(name)
        )


def _error(found: Found | None) -> TisError | None:
    if isinstance(found, ModelFailure):
        return ConfigErrors(found.errors, found.versions)
    return found if isinstance(found, TisError) else None


def _groups(actions: list[Action], sources: Mapping[str, ModelSource | None]) -> tuple[tuple[Action, ...], ...]:
    """Actions by what hangs together, each group in the order given."""
    group = {action.name: {action.name} for action in actions}
    for action in actions:
        source = sources.get(action.name)
        for step in dependencies(source) if source is not None else ():
            if step in group and group[step] is not group[action.name]:
                joined = group[step] | group[action.name]
                group.update((name, joined) for name in joined)
    seen: list[set[str]] = []
    for action in actions:
        if group[action.name] not in seen:
            seen.append(group[action.name])
    return tuple(tuple(action for action in actions if action.name in names) for names in seen)
