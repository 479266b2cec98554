"""When a level has been measured enough, and why not.  Layer 5 (bench).

The rule: the 95 % interval of the wanted figure is narrower than a percentage of it to both sides.  It is looked at
when the requests have grown by half since the last look: who looks after each request stops at a lucky moment, and the
interval then holds the truth less often than it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tisfast.bench.figures import needed_for
from tisfast.bench.histogram import Histogram
from tisfast.bench.statistics import Interval, mean_interval, quantile_interval, trend

GROWTH: Final = 1.5
LOOK_CONFIDENCE: Final = 0.98
"""Of each look, so that all of them together keep 95 %."""
BATCHES_MIN: Final = 20
"""Pieces of time before the first look."""
TREND_P: Final = 0.001
"""A trend is said when chance makes one this seldom."""
TREND_SHARE: Final = 0.05
"""And when it changes the latency by so much within the level."""
BURST_FACTOR: Final = 2.0
BURST_SHARE: Final = 0.02


@dataclass(frozen=True)
class Rule:
    """quantile: the wanted one, None for the mean; percent: half the interval at most, of the figure."""

    quantile: float | None
    percent: float
    seconds_min: float
    seconds_max: float


class Verdict(NamedTuple):
    """The end of a level.  reason: one sentence, "" where `why_unstable` has it; interval: of the wanted figure."""

    stable: bool
    reason: str
    interval: Interval


@dataclass
class Stopping:
    """Looks at a level as it grows."""

    rule: Rule
    _next_count: float = 0.0

    def look(self, seconds: float, response: Histogram, pieces: Sequence[Histogram]) -> Verdict | None:
        """The verdict when the level may end now; None: go on."""
        rule = self.rule
        over = seconds >= rule.seconds_max
        if not over and (
            seconds < rule.seconds_min or len(pieces) < BATCHES_MIN or response.count < max(self._next_count, 1)
        ):
            return None
        self._next_count = response.count * GROWTH
        interval = wanted(rule, response, pieces)
        if interval.half_width * 100 <= rule.percent:
            reason = f"{_name(rule)} is known within {_two_digits(100 * interval.half_width)} %, with 95 % confidence"
            return Verdict(True, reason, interval)
        return Verdict(False, "", interval) if over else None


def wanted(rule: Rule, response: Histogram, pieces: Sequence[Histogram]) -> Interval:
    """The figure that must be known, in ns."""
    if rule.quantile is not None:
        return quantile_interval(response, rule.quantile, pieces, LOOK_CONFIDENCE)
    return mean_interval(pieces, LOOK_CONFIDENCE)


def why_unstable(
    rule: Rule, verdict: Verdict, response: Histogram, pieces: Sequence[Histogram], errors: int = 0, limited: str = ""
) -> str:
    """One sentence: the first of client, errors, drift, too few requests and bursts that holds; with what cures it."""
    name, within = _name(rule), _width(verdict.interval)
    if limited:
        return f"{name} is known only within {within}: {limited}"
    if errors:
        return f"{name} is known only within {within}: {errors} requests failed; mend those first"
    medians = np.array([each.quantile(0.5) for each in pieces if each.count], np.float64)
    found = trend(medians)
    change = found.slope * len(medians) / float(np.median(medians)) if len(medians) and np.median(medians) > 0 else 0.0
    if found.p < TREND_P and abs(change) >= TREND_SHARE:
        verb = "rose" if change > 0 else "fell"
        return (
            f"the latency {verb} by {100 * abs(change):.0f} % during the level, so it has no figure of its own: look "
            "for what grows, warms up or is throttled, or add --warmup-request-count"
        )
    if rule.quantile is not None and response.count < needed_for(rule.quantile):
        return (
            f"{response.count} requests are too few for {name}, which takes {needed_for(rule.quantile)}: raise "
            "--measurement-interval or --max-trials"
        )
    if len(medians) and float((medians > BURST_FACTOR * np.median(medians)).mean()) >= BURST_SHARE:
        share = 100 * float((medians > BURST_FACTOR * np.median(medians)).mean())
        return (
            f"{name} is known only within {within}: in {share:.0f} % of the time the latency was above "
            f"{BURST_FACTOR:g} times its median; look for what else runs there, or raise --measurement-interval"
        )
    return _too_wide(rule, verdict.interval, response.count)


def _too_wide(rule: Rule, interval: Interval, count: int) -> str:
    """One sentence of an interval that nothing but its requests explains."""
    name, within = _name(rule), _width(interval)
    if math.isinf(interval.half_width):  # no number of requests is known that would do
        return f"too few answers ({count}) to know {name} at all; raise --measurement-interval or --max-trials"
    more = math.ceil((interval.half_width * 100 / rule.percent) ** 2) if rule.percent > 0 else 0
    advice = f"about {more} times the requests would do" if 1 < more < 1000 else "it varies too much"
    return (
        f"{name} is known only within {within}, and {rule.percent:g} % are wanted: {advice}; raise "
        "--measurement-interval or --stability-percentage"
    )


def _name(rule: Rule) -> str:
    return "the mean latency" if rule.quantile is None else f"the p{100 * rule.quantile:g} latency"


def _width(interval: Interval) -> str:
    return "no bound" if math.isinf(interval.half_width) else f"{100 * interval.half_width:.2g} %"


def _two_digits(percent: float) -> str:
    """Without an exponent, also where it is far from known."""
    return f"{percent:.2g}" if percent < 10 else f"{percent:.0f}"
