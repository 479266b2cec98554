"""Which variants are measured, in which order.  Knows figures only as gains.  Layer 5 (analyze)."""

from __future__ import annotations

from collections.abc import Callable

from tisfast.analyze.space import Point, Space

Score = Callable[[Point], float]
"""Measures the variant at a place, once, and tells how good it is: more is better, -inf where it failed."""


def brute(space: Space, score: Score) -> None:
    """All of them."""
    for point in space.points():
        score(point)


def quick(space: Space, start: Point, score: Score, alike: float) -> None:
    """Climb: go to the best neighbour while that is better; where none along one axis is, look at the others, too.

    alike: a gain that is not more than it is none.  Ends, as each step is better than the one before by more.
    """
    here, best = start, score(start)
    while True:
        for around in (space.beside(here), space.around(here)):
            scores = {point: score(point) for point in around}
            found = max(scores, key=scores.__getitem__, default=None)
            if found is not None and scores[found] > best + alike:
                here, best = found, scores[found]
                break
        else:
            return
