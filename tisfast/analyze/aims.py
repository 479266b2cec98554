"""What is wanted: objectives and constraints.  Layer 5 (analyze)."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Final, NamedTuple

from tisfast.analyze.trials import LATENCIES, Figures, Trial
from tisfast.analyze.variants import named, parted
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
GAIN_MAX: Final = 20.0
"""A logarithm beyond any ratio of two rows, and within what a float can raise."""


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


def _ratio(new: float, old: float) -> float:
    """As a logarithm; memory of a GPU that is not used is 0, and so is the throughput of what did not answer."""
    if new > 0 and old > 0:
        return max(-GAIN_MAX, min(math.log(new / old), GAIN_MAX))
    return GAIN_MAX * ((new > 0) - (old > 0))
