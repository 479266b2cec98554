"""The histogram: its stated error, exact totals, exact merges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast.bench.histogram import Histogram

DURATION = st.one_of(
    st.integers(0, 5000),
    st.integers(0, 2**63 - 1),
    st.integers(10, 62).map(lambda n: 2**n - 1),
    st.integers(0, 62).map(lambda n: 2**n),
)  # fmt: skip
HEAD_BYTES = 48
"""Of to_bytes: count, sum and the like; the sum of squares is a float, which depends on the order."""
DURATIONS = st.lists(DURATION, max_size=300)


def histogram(durations) -> Histogram:
    counted = Histogram()
    for ns in durations:
        counted.record(ns)
    return counted


def same(one: Histogram, other: Histogram) -> bool:
    return one.to_bytes() == other.to_bytes()


@given(durations=st.lists(DURATION, min_size=1, max_size=300), q=st.floats(0, 1))
def test_a_quantile_is_within_the_stated_error_of_the_duration_itself(durations, q):
    counted = histogram(durations)
    truth = sorted(durations)[max(math.ceil(q * len(durations) - 1e-9), 1) - 1]

    assert abs(counted.quantile(q) - truth) <= truth / 2048


@given(durations=st.lists(DURATION, min_size=1, max_size=100))
def test_each_rank_is_within_the_stated_error_and_the_extremes_are_exact(durations):
    counted = histogram(durations)
    found = [counted.at_rank(rank) for rank in range(1, len(durations) + 1)]

    assert all(abs(mine - true) <= true / 2048 for mine, true in zip(found, sorted(durations), strict=True))
    assert (found[0], found[-1]) == (min(durations), max(durations)) == (counted.minimum, counted.maximum)


@given(durations=st.lists(st.integers(0, 2**40), max_size=300))
def test_count_sum_and_deviation_are_those_of_the_durations(durations):
    counted = histogram(durations)

    assert (counted.count, counted.sum) == (len(durations), sum(durations))
    if len(durations) > 1:
        assert counted.deviation == pytest.approx(float(np.std(durations, ddof=1)), rel=1e-6, abs=1e-3 * max(durations))


@given(one=DURATIONS, other=DURATIONS)
def test_a_merge_equals_counting_all_in_one(one, other):
    merged = histogram(one)
    merged.merge(histogram(other))

    total = histogram(one + other)
    assert (merged.count, merged.minimum, merged.maximum) == (total.count, total.minimum, total.maximum)
    assert merged.to_bytes()[HEAD_BYTES:] == total.to_bytes()[HEAD_BYTES:]


@given(durations=DURATIONS, ns=DURATION)
def test_what_lies_above_is_known_within_the_width_of_a_counter(durations, ns):
    counted = histogram(durations)

    assert sum(each > ns for each in durations) <= counted.above(ns)
    assert counted.above(ns) <= sum(each >= ns - ns / 1024 for each in durations)


@given(durations=DURATIONS)
def test_another_process_gets_all_of_it(durations):
    counted = histogram(durations)

    assert same(Histogram.from_bytes(counted.to_bytes()), counted)


@given(durations=DURATIONS, data=st.binary(max_size=90), at=st.integers(0, 200))
@settings(max_examples=200)
def test_broken_bytes_are_refused_or_read_as_a_histogram_that_adds_up(durations, data, at):
    good = histogram(durations).to_bytes()
    for broken in (data, good[:at], good + data, good[:at] + data + good[at + len(data) :]):
        try:
            read = Histogram.from_bytes(broken)
        except ValueError:
            continue
        assert read.above(-1) == read.count


def test_an_empty_one_has_only_zeros():
    empty = Histogram()

    assert [empty.count, empty.sum, empty.minimum, empty.maximum, empty.deviation, empty.quantile(0.5)] == [0] * 6


def test_a_duration_below_zero_counts_as_zero():
    assert histogram([-5]).quantile(1) == 0


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_no_quantile_outside_0_and_1(q):
    with pytest.raises(ValueError, match="between 0 and 1"):
        histogram([1]).quantile(q)
