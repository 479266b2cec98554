"""Which variants are measured, in which order.  Knows figures only as gains.  Layer 5 (analyze)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

from tisfast.analyze.space import Point, Space
from tisfast.analyze.variants import Variant

ASKED_MAX: Final = 20
"""Times as many points as are measured: what is proposed again costs nothing."""
SKIPPED_MAX: Final = 3
"""Values in a row that fail, and are skipped over: what lies far behind them would fail as well."""
FAILED: Final = -1e9
"""For a sampler that takes numbers alone."""

Score = Callable[[Point], float]
"""Measures the variant at a place, once, and tells how good it is: more is better, -inf where it failed."""


def brute(space: Space, score: Score) -> None:
    """All of them."""
    for point in space.points():
        score(point)


def quick(space: Space, start: Point, score: Score, alike: float) -> None:
    """Climb: go to the best neighbour while that is better; where none along one axis is, look at the others, too.

    alike: a gain that is not more than it is none.  Ends, as each step is better than the one before by more.
    What fails is skipped over: the value behind it is looked at instead.
    """
    here, best = start, score(start)
    while True:
        for around in (space.beside(here), space.around(here)):
            scores = _scores(space, here, around, score)
            found = max(scores, key=scores.__getitem__, default=None)
            if found is not None and scores[found] > best + alike:
                here, best = found, scores[found]
                break
        else:
            return


def _scores(space: Space, here: Point, around: Iterable[Point], score: Score) -> dict[Point, float]:
    found: dict[Point, float] = {}
    for point in around:
        there: Point | None = point
        for _ in range(SKIPPED_MAX + 1):
            if there is None or found.setdefault(there, score(there)) > -math.inf:
                break
            there = space.behind(here, there)
    return found


def bayesian(space: Space, start: Point, score: Score, trials: int) -> None:
    """Optuna's sampler (tree-structured Parzen estimators) proposes points; so many different variants are measured.

    The same figures give the same path, so a run that goes on takes its first steps from the checkpoint.
    """
    import optuna  # noqa: PLC0415 - an extra, and a second to import

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.enqueue_trial({axis.name: at for axis, at in zip(space.axes, start, strict=True)})
    wanted, seen = min(trials, space.variants), set[Variant]()
    for _ in range(ASKED_MAX * wanted):
        if len(seen) >= wanted:
            return
        trial = study.ask()
        point = tuple(trial.suggest_int(axis.name, 0, len(axis.values) - 1) for axis in space.axes)
        seen.add(space.variant(point))
        study.tell(trial, max(score(point), FAILED))
