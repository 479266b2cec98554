"""Histograms of durations: bounds, quantiles, windows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.engine.histogram import FirstResponse, Histogram

MICROSECONDS = st.integers(0, 2**36 - 1)


def filled(*microseconds):
    histogram = Histogram()
    for each in microseconds:
        histogram.observe(each * 1000)
    return histogram


@given(st.lists(MICROSECONDS), st.integers(0, 35))
def test_powers_of_two_are_exact_bounds(durations, power):
    assert filled(*durations).below(power) == sum(each < 2**power for each in durations)


@given(MICROSECONDS)
def test_a_quantile_is_within_four_percent(duration):
    (found,) = filled(duration).quantiles([0.5])
    assert found == pytest.approx(duration, rel=0.04, abs=0.51)


@given(st.lists(st.integers(0, 31), min_size=1), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_quantiles_are_by_rank(durations, share):
    rank = min(int(share * len(durations)), len(durations) - 1)
    assert filled(*durations).quantiles([share]) == [sorted(durations)[rank]]


def test_quantiles_since_a_copy_know_nothing_of_before():
    histogram = filled(*[1000] * 100)
    copy = histogram.copy()
    assert all(math.isnan(each) for each in histogram.quantiles([0.5, 0.99], copy))
    histogram.observe(7000)
    assert histogram.quantiles([0.5, 0.99], copy) == [7, 7]
    assert copy.count == 100


def test_count_and_total():
    histogram = filled(3, 5)
    histogram.observe(-4)  # clocks of two cores may differ by a little
    assert (histogram.count, histogram.total_ns) == (3, 8000)


def test_durations_beyond_the_last_bucket_are_in_it():
    assert filled(2**40).quantiles([0.5])[0] == pytest.approx(2**36, rel=0.04)


def test_first_response_buckets_hold_their_upper_end():
    histogram = FirstResponse((1, 10.5))
    for ms in (0.5, 1, 1.1, 10.5, 11):
        histogram.observe(int(ms * 1e6))
    assert histogram.cumulative() == [2, 4, 5]
    assert histogram.total_ns == 24_100_000
