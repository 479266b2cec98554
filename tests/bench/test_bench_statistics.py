"""Statistics against what is known: tables, exact counts, and coverage in simulation (fixed seeds)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.made_levels import histogram_of, latencies_by_window, windows_of
from tisfast.bench.figures import needed_for
from tisfast.bench.statistics import (
    bootstrap_ratio,
    dispersion,
    holm,
    mann_whitney,
    mean_interval,
    quantile_interval,
    quantile_ranks,
    signed_rank,
    student_quantile,
    trend,
    warm_up_end,
)

SERIES = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=0, max_size=60).map(np.array)


@pytest.mark.parametrize(
    ("freedom", "known"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)]
)
def test_students_t_is_that_of_the_tables(freedom, known):
    assert student_quantile(0.975, freedom) == pytest.approx(known, rel=5e-3)


@pytest.mark.parametrize(("q", "needed"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)])
def test_so_many_samples_bound_a_quantile(q, needed):
    assert needed_for(q) == needed
    assert quantile_ranks(needed - 1, q)[1] is None
    assert quantile_ranks(needed, q)[1] is not None


@pytest.mark.parametrize("count", [50, 400, 5000, 5001, 20000])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_the_ranks_of_an_interval_hold_the_quantile_in_95_percent(count, q):
    low, high = quantile_ranks(count, q)
    below = np.random.default_rng(5).binomial(count, q, 20_000)  # samples below the true quantile

    held = (below >= low) & ((below < high) if high is not None else True)
    assert held.mean() >= 0.945
    if high is not None and count >= 400:
        assert held.mean() <= 0.985


def test_alike_neighbours_widen_the_interval_until_it_holds_the_truth():
    random, q, held, naive = np.random.default_rng(11), 0.9, 0, 0
    truth = math.exp(1.2815515594600038) * 1e6
    rounds = 120
    for _ in range(rounds):
        # 100 windows whose level wanders: an AR(1) of windows, of which requests are one half
        level = np.zeros(100)
        steps = random.normal(size=100)
        level[0] = steps[0]
        for at in range(1, 100):
            level[at] = 0.5 * level[at - 1] + math.sqrt(0.75) * steps[at]
        draws = math.sqrt(0.5) * level[:, None] + math.sqrt(0.5) * random.normal(size=(100, 50))
        total, windows = windows_of(np.exp(draws) * 1e6)
        found, plain = quantile_interval(total, q, latencies_by_window(windows)), quantile_interval(total, q)
        held += found.low <= truth <= (found.high or math.inf)
        naive += plain.low <= truth <= (plain.high or math.inf)

    assert naive / rounds < 0.7
    assert held / rounds >= 0.88


def test_independent_requests_count_in_full():
    total, windows = windows_of(np.random.default_rng(2).exponential(1e6, (60, 200)))

    assert dispersion(latencies_by_window(windows), 0.9, total.quantile(0.9)) < 1.7


@pytest.mark.parametrize("closed", [False, True])
def test_the_interval_of_a_mean_holds_it(closed):
    """Also where a slow piece holds fewer requests, as in a closed loop."""
    random, held = np.random.default_rng(3), 0
    for _ in range(200):
        pieces = []
        for _ in range(40):
            slow = random.random() < 0.5
            mean = 8e6 if slow else 2e6
            pieces.append(histogram_of(random.exponential(mean, 20 if slow and closed else 80)))
        truth = (20 * 8e6 + 80 * 2e6) / 100 if closed else 5e6
        found = mean_interval(pieces)
        held += found.low <= truth <= (found.high or math.inf)

    assert 0.9 <= held / 200 <= 0.99


def test_the_warm_up_is_cut_where_it_ends():
    random = np.random.default_rng(4)
    series = np.concatenate([np.linspace(50, 10, 40), np.full(160, 10.0)]) + random.normal(0, 0.5, 200)

    cut = warm_up_end(series)

    assert cut is not None and 30 <= cut <= 45


def test_without_warm_up_little_is_cut():
    cut = warm_up_end(10 + np.random.default_rng(6).normal(0, 1, 200))

    assert cut is not None and cut <= 100


def test_a_series_that_falls_to_its_end_has_no_steady_part():
    assert warm_up_end(np.concatenate([np.linspace(100, 10, 190), np.full(10, 10.0)])) is None
    assert warm_up_end(np.ones(10)) is None


def test_a_trend_is_found_in_noise_and_not_in_noise_alone():
    noise = np.random.default_rng(7).normal(0, 1, 150)
    rising = trend(noise + np.arange(150) * 0.02)

    assert rising.p < 1e-4
    assert rising.slope == pytest.approx(0.02, rel=0.4)
    assert trend(noise).p > 0.05
    assert trend(np.ones(50)) == (0.0, 1.0)


def test_mann_whitney_is_that_of_the_tables():
    assert mann_whitney(np.array([1.0, 2, 3]), np.array([4.0, 5, 6])) == pytest.approx(0.1)
    assert mann_whitney(np.array([1.0, 2, 3, 4]), np.array([5.0, 6, 7, 8])) == pytest.approx(2 / 70)
    assert mann_whitney(np.array([1.0, 4, 5]), np.array([2.0, 3, 6])) == pytest.approx(1.0)


@given(first=SERIES, second=SERIES)
def test_mann_whitney_is_symmetric_and_a_probability(first, second):
    p = mann_whitney(first, second)

    assert 0 <= p <= 1
    assert p == pytest.approx(mann_whitney(second, first))


def test_mann_whitney_keeps_its_level():
    random = np.random.default_rng(8)
    found = [mann_whitney(random.exponential(1, 25), random.exponential(1, 25)) < 0.05 for _ in range(600)]

    assert 0.025 <= np.mean(found) <= 0.08


def test_signed_ranks_are_those_of_the_tables():
    ones = np.ones(6)

    assert signed_rank(ones[:5], ones[:5] * [1.1, 1.2, 1.3, 1.4, 1.5]) == pytest.approx(2 / 32)
    assert signed_rank(ones, ones * [1.1, 1.2, 1.3, 1.4, 1.5, 1 / 1.05]) == pytest.approx(4 / 64)
    assert signed_rank(ones, ones) == 1.0
    assert signed_rank(ones[:0], ones[:0]) == 1.0


@pytest.mark.parametrize("pairs", [20, 60])
def test_signed_ranks_keep_their_level_and_see_through_what_both_share(pairs):
    random = np.random.default_rng(11)
    load = random.lognormal(0, 0.5, (600, pairs))
    first, second = load * random.lognormal(0, 0.02, load.shape), load * random.lognormal(0, 0.02, load.shape)
    found = [signed_rank(mine, its) < 0.05 for mine, its in zip(first, second, strict=True)]

    assert 0.025 <= np.mean(found) <= 0.08
    assert all(signed_rank(mine, 1.05 * its) < 0.01 for mine, its in zip(first, second, strict=True))
    assert mann_whitney(first[0], 1.05 * second[0]) > 0.05  # which knows nothing of pairs


def test_holm_is_that_of_the_book():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_and_keeps_the_order(probabilities):
    corrected = holm(probabilities)

    assert all(mine >= given and mine <= 1 for mine, given in zip(corrected, probabilities, strict=True))
    order = sorted(range(len(probabilities)), key=lambda at: probabilities[at])
    assert [corrected[at] for at in order] == sorted(corrected)


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_of_a_ratio_holds_it(paired):
    random, held = np.random.default_rng(9), 0
    for _ in range(150):
        load = random.lognormal(0, 0.1, 24) if paired else np.ones(24)
        first, second = load * random.lognormal(0, 0.05, 24), load * 1.2 * random.lognormal(0, 0.05, 24)
        found = bootstrap_ratio(first, second, paired=paired, rounds=400)
        held += found.low <= 1.2 <= (found.high or math.inf)

    assert held / 150 >= 0.87


def test_the_same_samples_have_the_same_interval():
    first, second = np.arange(1.0, 20), np.arange(2.0, 21)

    assert bootstrap_ratio(first, second) == bootstrap_ratio(first, second)
    assert bootstrap_ratio(first, first).value == 1.0
