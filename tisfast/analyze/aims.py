"""What is wanted: objectives, constraints, and the order that they give.  Layer 5 (analyze)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tisfast.analyze.space import Space
from tisfast.analyze.trials import LATENCIES, Figures, Trial
from tisfast.analyze.variants import DEFAULT, INSTANCES, Value, named, parted
from tisfast.bench.statistics import CONFIDENCE, student_quantile
from tisfast.errors import ConfigError

THROUGHPUT: Final = "throughput"
MEMORY: Final = "memory"
GPU_MEMORY: Final = "gpu_memory"
OF_PROCESSES: Final = (MEMORY, GPU_MEMORY)
UNITS: Final = {THROUGHPUT: "/s", MEMORY: " MB", GPU_MEMORY: " MB", **{f"latency_{each}": " ms" for each in LATENCIES}}
"""The metrics, with their units."""
OTHER_NAMES: Final = {
    "latency": "latency_avg",
    "cpu_used_ram": MEMORY,
    "gpu_used_memory": GPU_MEMORY,
    **{each: f"latency_{each}" for each in LATENCIES if each != "avg"},
    **{f"perf_{name}": name for name in UNITS if name not in OF_PROCESSES},
}
"""Short ones, and Model Analyzer's."""
TURNS_MIN: Final = 3
"""Pairs of measurements from which a difference is told from chance: fewer do not show how much they vary."""
GAIN_MAX: Final = 20.0
"""A logarithm beyond any ratio of two rows, and within what a float can raise."""

Simple = Callable[[Trial], tuple[float, ...]]
"""Orders rows that are alike: what is smaller is preferred."""


def metric(text: str, models: Container[str] = ()) -> str:
    """By any of its names, with the name of one of the models before it where it is of that.  Raises ConfigError."""
    model, name = parted(text, models)
    found = OTHER_NAMES.get(name, name)
    if found not in UNITS:
        raise ConfigError(f"'{name}' is no metric that is measured here; there are {', '.join(UNITS)}")
    if model and found in OF_PROCESSES:
        raise ConfigError(f"{text}: memory is known of all models together; write {found}")
    return named(model, found)


def plain(name: str) -> str:
    """A metric without its model."""
    return name.rpartition(":")[2]


def unit(name: str) -> str:
    """Of a metric."""
    return UNITS[plain(name)]


class Constraint(NamedTuple):
    """A bound that a metric keeps.  most: it is at most the limit, else at least."""

    metric: str
    limit: float
    most: bool

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.metric} {'<=' if self.most else '>='} {self.limit:g}{unit(self.metric)}"


def value_of(trial: Figures, name: str) -> float | None:
    """None where it was not measured."""
    model, _, own = name.rpartition(":")
    if own in OF_PROCESSES:
        return trial.memory_mb if own == MEMORY else trial.gpu_memory_mb
    figures = trial.models.get(model) if model else trial
    if figures is None:
        return None
    return figures.throughput if own == THROUGHPUT else figures.latency_ms.get(own.removeprefix("latency_"))


@dataclass(frozen=True)
class Aims:
    """objectives: weights by metric; margin: percent within which two are alike, and the simpler one is preferred."""

    objectives: tuple[tuple[str, float], ...] = ((THROUGHPUT, 1.0),)
    constraints: tuple[Constraint, ...] = ()
    margin: float = 3.0

    def broken(self, trial: Trial) -> list[str]:
        """What a row does not keep, a sentence each."""
        found = []
        for each in self.constraints:
            value = value_of(trial, each.metric)
            if value is None:
                found.append(f"{each.metric} is not known")
            elif self._excess(trial, each) > 0:
                found.append(f"{each.metric} is {value:.4g}{unit(each.metric)}, not {each.text.split(' ', 1)[1]}")
        return found

    def too_slow(self, trial: Trial) -> bool:
        """A bound of latency is broken."""
        return self._slowness(trial) > 0

    def slower(self, trial: Trial, before: Trial) -> bool:
        """A bound of latency is broken, and by more than before."""
        return self._slowness(trial) > self._slowness(before)

    def _slowness(self, trial: Trial) -> float:
        return sum(self._excess(trial, each) for each in self.constraints if plain(each.metric).startswith("latency"))

    def excess(self, trial: Trial) -> float:
        """How far a row is beyond its bounds, 0 where it keeps them."""
        return sum(self._excess(trial, each) for each in self.constraints)

    def _excess(self, trial: Trial, bound: Constraint) -> float:
        value = value_of(trial, bound.metric)
        if value is None or value <= 0 or bound.limit <= 0:
            return 1.0 if value is None or (value > bound.limit) == bound.most else 0.0
        ratio = math.log(value / bound.limit)
        return max(ratio if bound.most else -ratio, 0.0)

    def gain(self, trial: Figures, base: Figures | None) -> float:
        """Against another row: weighted mean of the logarithms of the ratios; above 0 is better.

        A row that lacks a figure which the other one has is as bad as can be; what the other one lacks is not compared.
        """
        if base is None:
            return 0.0
        total, weights = 0.0, 0.0
        for name, weight in self.objectives:
            new, old = value_of(trial, name), value_of(base, name)
            if old is None:
                continue
            if new is None:
                return -GAIN_MAX
            ratio = _ratio(new, old)
            total += weight * (ratio if plain(name) == THROUGHPUT else -ratio)
            weights += weight
        return total / weights if weights else 0.0

    @property
    def alike(self) -> float:
        """The margin as a gain."""
        return math.log1p(self.margin / 100)


class Ranked(NamedTuple):
    """A variant at its best level.

    gain: in percent against the default, None where that failed; broken: bounds that it does not keep.
    """

    trial: Trial
    gain: float | None
    broken: list[str]


def _ratio(new: float, old: float) -> float:
    """As a logarithm; memory of a GPU that is not used is 0, and so is the throughput of what did not answer."""
    if new > 0 and old > 0:
        return max(-GAIN_MAX, min(math.log(new / old), GAIN_MAX))
    return GAIN_MAX * ((new > 0) - (old > 0))


def _order(trial: Trial, aims: Aims, base: Trial | None) -> tuple[float, float]:
    return aims.excess(trial), -aims.gain(trial, base)


def best_level(trials: Sequence[Trial], aims: Aims, base: Trial | None, needed: int = 1) -> Trial | None:
    """Of one variant's rows; the least load of those that are alike.  None where all have failed.

    needed: as in ranking.
    """
    good = [each for each in trials if not each.failure]
    return _simplest(_groups(good, aims, needed)[0], aims, base, lambda trial: (trial.level,)) if good else None


def _groups(trials: Sequence[Trial], aims: Aims, needed: int) -> list[list[Trial]]:
    """Those that keep all bounds first, and of those, as of the others, those that were measured often enough."""
    found: dict[tuple[bool, bool], list[Trial]] = {}
    for each in trials:
        found.setdefault((aims.excess(each) > 0, each.measured < needed), []).append(each)
    return [found[key] for key in sorted(found)]


def _simplest(trials: Sequence[Trial], aims: Aims, base: Trial | None, simple: Simple) -> Trial:
    head = min(trials, key=lambda trial: _order(trial, aims, base))
    excess, gain = aims.excess(head), aims.gain(head, base)
    near = [
        each
        for each in trials
        if aims.excess(each) <= excess + (aims.alike if excess else 0.0) and gain - aims.gain(each, base) <= aims.alike
    ]
    return min(near, key=simple)


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


def ranking(trials: Iterable[Trial], aims: Aims, simple: Simple, needed: int = 1) -> list[Ranked]:
    """Each variant at its best level, the best one first; those that keep all bounds before the others.

    needed: measurements of a row; those with fewer stand behind those that have as many, as one may be chance.
    """
    by_variant: dict[str, list[Trial]] = {}
    for each in trials:
        by_variant.setdefault(each.variant.text, []).append(each)
    base = best_level(by_variant.get(DEFAULT.text, []), aims, None, needed)
    if base is not None:  # its best level is told by gains against any of its rows
        base = best_level(by_variant[DEFAULT.text], aims, base, needed)
    rest = _best_levels(by_variant.values(), aims, base, needed)
    compared = base is not None
    if base is None and rest:
        base = rest[0]
        rest = _best_levels(by_variant.values(), aims, base, needed)
    ordered = []
    for group in _groups(rest, aims, needed):
        while group:
            chosen = _simplest(group, aims, base, simple)
            group.remove(chosen)
            gain = 100 * math.expm1(aims.gain(chosen, base)) if compared else None
            ordered.append(Ranked(chosen, gain, aims.broken(chosen)))
    return ordered


def _best_levels(variants: Iterable[Sequence[Trial]], aims: Aims, base: Trial | None, needed: int) -> list[Trial]:
    return [found for each in variants if (found := best_level(each, aims, base, needed)) is not None]


class Difference(NamedTuple):
    """Of two rows that were measured by turns: the gain, in percent, and the interval where the true one lies.

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


def difference(trial: Trial, base: Trial, aims: Aims) -> Difference:
    """By the objectives, turn by turn: what the machine did meanwhile is in both.  The interval is Student's."""
    before = {each.turn: each for each in base.rounds if each.turn}
    gains = [aims.gain(each, before[each.turn]) for each in trial.rounds if each.turn in before]
    if len(gains) < 2:
        return Difference(len(gains), 100 * math.expm1(aims.gain(trial, base)), -math.inf, math.inf)
    mean = statistics.fmean(gains)
    wide = student_quantile((1 + CONFIDENCE) / 2, len(gains) - 1) * statistics.stdev(gains) / math.sqrt(len(gains))
    percent = [100 * math.expm1(min(each, GAIN_MAX)) for each in (mean, mean - wide, mean + wide)]
    return Difference(len(gains), *percent)
