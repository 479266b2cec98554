"""The stopping rule: it ends, its interval holds the truth as often as it says, and it says why not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.bench.made_levels import histogram_of, latencies_by_window, windows_of
from tisfast.bench.histogram import Histogram
from tisfast.bench.stopping import Rule, Stopping, wanted, why_unstable

P90 = math.exp(1.2815515594600038 * 0.5) * 1e6


def pieces_of(durations):
    total, windows = windows_of(durations)
    return total, latencies_by_window(windows)


def simulated(rule: Rule, correlation: float, random: np.random.Generator) -> tuple[bool, float, float, float]:
    """One level, window by window of 40 log-normal latencies; (stable, low, high, seconds)."""
    total, pieces, stopping, load = Histogram(), [], Stopping(rule), 0.0
    for at in range(int(rule.seconds_max * 10)):
        load = correlation * load + math.sqrt(1 - correlation**2) * random.normal()
        share = 0.3 if correlation else 0.0
        draws = math.sqrt(share) * load + math.sqrt(1 - share) * random.normal(size=40)
        pieces.append(histogram_of(np.exp(0.5 * draws) * 1e6))
        total.merge(pieces[-1])
        verdict = stopping.look((at + 1) / 10, total, pieces)
        if verdict is not None:
            return verdict.stable, verdict.interval.low, verdict.interval.high or math.inf, (at + 1) / 10
    raise AssertionError("the level did not end")


@pytest.mark.parametrize(("quantile", "truth"), [(0.9, P90), (None, math.exp(0.125) * 1e6)])
def test_where_it_stops_the_interval_holds_the_truth_as_stated(quantile, truth):
    random = np.random.default_rng(17)
    rounds = [simulated(Rule(quantile, 4.0, 2.0, 60.0), 0.0, random) for _ in range(120)]

    assert all(stable for stable, *_ in rounds)
    assert np.mean([low <= truth <= high for _, low, high, _ in rounds]) >= 0.95
    assert all(high <= 1.09 * low for _, low, high, _ in rounds)  # 4 % to both sides


def test_it_holds_for_neighbours_that_are_alike_and_takes_longer():
    random = np.random.default_rng(18)
    alike = [simulated(Rule(0.9, 6.0, 2.0, 60.0), 0.3, random) for _ in range(80)]
    alone = [simulated(Rule(0.9, 6.0, 2.0, 60.0), 0.0, random) for _ in range(20)]

    assert np.mean([low <= P90 <= high for _, low, high, _ in alike]) >= 0.92
    assert np.median([seconds for *_, seconds in alike]) > np.median([seconds for *_, seconds in alone])


def test_it_ends_when_the_time_is_over_and_says_how_well_the_figure_is_known():
    total, pieces = pieces_of(np.random.default_rng(1).lognormal(13, 1.5, (30, 20)))
    rule = Rule(0.99, 1.0, 1.0, 3.0)
    stopping = Stopping(rule)

    verdict = stopping.look(3.0, total, pieces)

    assert verdict is not None and not verdict.stable
    assert "1 % are wanted" in why_unstable(rule, verdict, total, pieces)


def test_it_does_not_look_before_its_least_time_nor_at_each_request():
    total, pieces = pieces_of(np.full((30, 50), 1e6))
    stopping = Stopping(Rule(0.5, 10.0, 5.0, 60.0))

    assert stopping.look(4.9, total, pieces) is None
    assert stopping.look(5.0, total, pieces[:19]) is None
    assert stopping.look(5.0, total, pieces).stable


def reason(durations, quantile=0.99, **more) -> str:
    total, pieces = pieces_of(durations)
    rule = Rule(quantile, 1.0, 1.0, 3.0)
    verdict = Stopping(rule).look(3.0, total, pieces)
    return why_unstable(rule, verdict._replace(stable=False), total, pieces, **more)


def test_the_reason_is_the_first_that_holds():
    random = np.random.default_rng(2)
    steady = random.lognormal(13, 1.0, (60, 100))
    rising = steady * np.linspace(1, 3, 60)[:, None]
    bursts = steady * np.where(np.arange(60) % 15 == 7, 8.0, 1.0)[:, None]

    assert "the client is busy" in reason(rising, limited="the client is busy; add --processes 2")
    assert "7 requests failed" in reason(rising, errors=7)
    assert "rose by" in reason(rising)
    assert "fell by" in reason(rising[::-1])
    assert "too few for the p99.9 latency, which takes 3688" in reason(steady[:30], 0.999)
    assert "times its median" in reason(bursts)
    assert "of the time" in reason(bursts)
    assert "1 % are wanted" in reason(steady)


def test_without_one_answer_it_still_ends_and_says_so():
    rule = Rule(0.99, 5.0, 1.0, 3.0)
    stopping = Stopping(rule)
    empty = Histogram()

    verdict = stopping.look(3.0, empty, [])

    assert verdict is not None and not verdict.stable
    assert "0 requests are too few" in why_unstable(rule, verdict, empty, [])


def test_where_no_number_of_requests_is_known_that_would_do_it_says_so():
    total, pieces = pieces_of(np.full((1, 1), 3e9))
    rule = Rule(None, 3.0, 0.1, 0.5)

    verdict = Stopping(rule).look(3.0, total, pieces)

    assert math.isinf(verdict.interval.half_width) and not verdict.stable
    assert "too few answers (1) to know the mean latency at all;" in why_unstable(rule, verdict, total, pieces)


def test_the_mean_is_wanted_where_no_quantile_is():
    total, pieces = pieces_of(np.random.default_rng(3).exponential(1e6, (50, 100)))

    found = wanted(Rule(None, 5.0, 1.0, 3.0), total, pieces)

    assert found.low < 1e6 < found.high
