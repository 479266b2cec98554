"""Quantiles of durations over the last minute or so.  Layer 4 (telemetry).

A histogram only ever grows.  What was added lately is the difference to a copy made at an earlier scrape: nothing is
kept on the hot path, and nothing at all without summaries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tisfast.engine.histogram import Histogram

WINDOW_SECONDS: Final = 60.0
STEP_SECONDS: Final = 12.0
PARTS: Final = ("request", "queue", "compute_input", "compute_infer", "compute_output")

Copies = dict[str, "Histogram"]


class Windows:
    """The copies of every model version's histograms, dropped with the version.  parts: attributes that hold them."""

    def __init__(self, parts: tuple[str, ...] = PARTS) -> None:
        self._parts = parts
        self._copies: dict[int, tuple[object, deque[tuple[float, Copies]]]] = {}

    def quantiles(self, timings: object, shares: list[float], now: float) -> dict[str, list[float]]:
        """Microseconds by part, over WINDOW_SECONDS or since the scrape before, whichever is longer."""
        since = self._since(timings, now)
        return {part: getattr(timings, part).quantiles(shares, since.get(part)) for part in self._parts}

    def forget_others(self, living: Sequence[object]) -> None:
        """Drop the copies of versions that are gone."""
        keep = {id(timings) for timings in living}
        self._copies = {key: value for key, value in self._copies.items() if key in keep}

    def _since(self, timings: object, now: float) -> Copies:
        _, copies = self._copies.setdefault(id(timings), (timings, deque()))
        while len(copies) > 1 and copies[1][0] <= now - WINDOW_SECONDS:
            copies.popleft()
        old = copies[0][1] if copies and copies[0][0] <= now - WINDOW_SECONDS else {}
        if not copies or now - copies[-1][0] >= STEP_SECONDS:
            copies.append((now, {part: getattr(timings, part).copy() for part in self._parts}))
        return old
