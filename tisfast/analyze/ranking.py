"""The order of what was measured, by one rule, and what is told from chance.  Layer 5 (analyze)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from tisfast.analyze.aims import GAIN_MAX, Aims, plain
from tisfast.analyze.space import Space
from tisfast.analyze.trials import Trial
from tisfast.analyze.variants import DEFAULT, INSTANCES, Value
from tisfast.bench.statistics import student_quantile

TURNS_MIN: Final = 3
"""From which turns break a bound, or tell two rows apart: fewer do not show how much they vary."""
SURE: Final = 0.995
"""Of the interval that has a variant win.  Several variants are looked at several times: 95 % would let chance win."""
MEASURED_ONCE: Final = "measured once"
NOT_APART: Final = "not told apart"
LARGE: Final = 2.0
"""A gain from here on is told as a factor."""
FACTOR_MAX: Final = 1000.0
"""A larger one is not told exactly: it is one of a figure near 0."""

Simple = Callable[[Trial], tuple[float, ...]]
"""Orders rows that are alike: what is smaller is preferred."""


class Difference(NamedTuple):
    """Of two rows that were measured by turns: the gain and the interval where the true one lies, as logarithms.

    turns: in which both were measured.
    """

    turns: int
    gain: float
    low: float
    high: float

    @property
    def apart(self) -> bool:
        """It is more than chance."""
        return self.turns >= TURNS_MIN and not self.low <= 0 <= self.high

    def better(self, aims: Aims) -> bool:
        """By more than chance, and by more than the margin."""
        return self.apart and self.low > 0 and self.gain > aims.alike


class Ranked(NamedTuple):
    """A variant at the level that stands for it.

    difference: from the default, None where that failed; broken: bounds that it does not keep; note: how sure its
    figures are, or "".
    """

    trial: Trial
    difference: Difference | None
    broken: list[str]
    note: str = ""

    @property
    def gain(self) -> float | None:
        """In percent against the default, None where that failed."""
        return None if self.difference is None else 100 * math.expm1(self.difference.gain)

    @property
    def gain_text(self) -> str:
        """For tables."""
        return "-" if self.difference is None else gain_text(self.difference.gain)


def gain_text(gain: float) -> str:
    """Of a logarithm: in percent, and what is large as a factor."""
    ratio = math.exp(min(gain, GAIN_MAX))
    if ratio > FACTOR_MAX:
        return f"x{FACTOR_MAX:g} or more"
    return f"x{ratio:.3g}" if ratio >= LARGE else f"{100 * (ratio - 1):+.3g} %"


def difference(trial: Trial, base: Trial, aims: Aims, first: int | None = None) -> Difference:
    """By the objectives, turn by turn: what the machine did meanwhile is in both.  The interval is Student's.

    first: so many turns count, where not all do.
    """
    before = {each.turn: each for each in base.turns}
    gains = [aims.gain(each, before[each.turn]) for each in trial.turns if each.turn in before][:first]
    if len(gains) < 2:
        return Difference(len(gains), gains[0] if gains else aims.gain(trial, base), -math.inf, math.inf)
    mean = sum(gains) / len(gains)
    freedom = len(gains) - 1
    deviation = math.sqrt(sum((each - mean) ** 2 for each in gains) / freedom)
    wide = student_quantile((1 + SURE) / 2, freedom) * deviation / math.sqrt(len(gains))
    return Difference(len(gains), mean, mean - wide, mean + wide)


def fallen(trial: Trial, aims: Aims) -> bool:
    """What the search had found good failed when it was measured again, or breaks a bound by the median of turns."""
    return bool(trial.failure) or (
        len(trial.turns) >= TURNS_MIN and aims.excess(trial) > 0 and not aims.excess(trial.first)
    )


class Placed(NamedTuple):
    """A row with what orders it."""

    excess: float
    gain: float
    simple: tuple[float, ...]
    trial: Trial


def _placed(trials: Iterable[Trial], aims: Aims, base: Trial | None, simple: Simple) -> list[Placed]:
    return [
        Placed(aims.excess(each), 0.0 if base is None else _difference(each, base, aims).gain, simple(each), each)
        for each in trials
    ]


def _difference(trial: Trial, base: Trial, aims: Aims) -> Difference:
    return Difference(len(base.turns), 0.0, 0.0, 0.0) if trial is base else difference(trial, base, aims)


def _simplest(rows: Sequence[Placed], aims: Aims) -> Placed:
    """The best one, or the simplest of those that are alike."""
    head = min(rows, key=lambda each: (each.excess, -each.gain))
    most = head.excess + (aims.alike if head.excess else 0.0)
    near = [each for each in rows if each.excess <= most and head.gain - each.gain <= aims.alike]
    return min(near, key=lambda each: each.simple)


def best_level(trials: Sequence[Trial], aims: Aims, base: Trial | None) -> Trial | None:
    """Of one variant's rows the one that stands for it; of those that are alike the least load.

    The search's own measurement chooses it, so turns do not change it; but what has fallen has the others stand for it.
    None where all have failed.
    """
    good = [each for each in trials if not each.failure]
    kept = {each.key: each for each in good if not fallen(each, aims) and not aims.excess(each.first)}
    if len(kept) == 1:
        return next(iter(kept.values()))
    if kept:
        firsts = _placed((each.first for each in kept.values()), aims, base and base.first, _load)
        return kept[_simplest(firsts, aims).trial.key]
    return _simplest(_placed(good, aims, base, _load), aims).trial if good else None


def _load(trial: Trial) -> tuple[float, ...]:
    return (trial.level,)


class Simplicity:
    """Orders rows that are alike: the default first, then fewer instances, then the order of the search space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def __call__(self, trial: Trial) -> tuple[float, ...]:
        """Smaller is simpler."""
        if trial.variant == DEFAULT:
            return (-1.0,)
        values = [(axis.values, trial.variant.value(axis.name)) for axis in self._space.axes]
        place = [_place(known, value) for known, value in values]
        instances = sum(int(value) for name, value in trial.variant.settings if plain(name) == INSTANCES)
        return (float(instances), float(sum(place)), *map(float, place))


def _place(known: Sequence[Value], value: Value | None) -> int:
    """Of a value among those of its axis; a setting of a format that is not served has none."""
    if value is None:
        return 0
    return known.index(value) if value in known else len(known)


def standing(trials: Iterable[Trial], aims: Aims) -> tuple[Trial | None, list[Trial]]:
    """The default's row, None where that failed, and of each variant the row that stands for it."""
    by_variant: dict[str, list[Trial]] = {}
    for each in trials:
        by_variant.setdefault(each.variant.text, []).append(each)
    base = best_level(by_variant.get(DEFAULT.text, []), aims, None)
    if base is not None:  # its best level is told by gains against any of its rows
        base = best_level(by_variant[DEFAULT.text], aims, base)
    against = base or next((each for rows in by_variant.values() for each in rows if not each.failure), None)
    found = [best_level(rows, aims, against) for rows in by_variant.values()]
    return base, [each for each in found if each is not None]


def by_figures(base: Trial | None, rows: Sequence[Trial], aims: Aims, simple: Simple) -> list[Placed]:
    """Those that keep all bounds first, then by gains; those that are alike go by simplicity."""
    placed = _placed(rows, aims, base or (rows[0] if rows else None), simple)
    ordered: list[Placed] = []
    for group in ([each for each in placed if not each.excess], [each for each in placed if each.excess]):
        while group:
            ordered.append(_simplest(group, aims))
            group.remove(ordered[-1])
    return ordered


def ranking(trials: Iterable[Trial], aims: Aims, simple: Simple) -> list[Ranked]:
    """Each variant once: the one that is recommended, then the others by their figures."""
    base, rows = standing(trials, aims)
    ordered = by_figures(base, rows, aims, simple)
    if ordered:
        first = recommended(ordered, base, aims)
        ordered.remove(first)
        ordered.insert(0, first)
    made = []
    for *_, each in ordered:
        found = None if base is None else _difference(each, base, aims)
        made.append(Ranked(each, found, aims.broken(each), _note(each, found)))
    return made


def recommended(ordered: Sequence[Placed], base: Trial | None, aims: Aims) -> Placed:
    """The first one; but where there were turns, one that had them, and before the default only what is better."""
    if not any(each.trial.turns for each in ordered):
        return ordered[0]
    if base is not None and not aims.excess(base):
        sure = [each for each in ordered if each.trial is base or difference(each.trial, base, aims).better(aims)]
        sure = [each for each in sure if not each.excess]
    else:
        sure = [each for each in ordered if each.trial.turns and each.excess <= ordered[0].excess]
    return _simplest(sure, aims) if sure else ordered[0]


def _note(trial: Trial, found: Difference | None) -> str:
    if not trial.turns:
        return MEASURED_ONCE
    return NOT_APART if found is not None and trial.variant != DEFAULT and not found.apart else ""
