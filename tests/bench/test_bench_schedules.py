"""Schedules: intended times are made once, ascending, and the same however they are asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tisfast.bench.schedules import Constant, Fixed, Intervals, Periodic, Poisson, Ramp, read_intervals
from tisfast.errors import BadRequest

SCHEDULES = {
    "constant": lambda: Constant(730.0),
    "poisson": lambda: Poisson(730.0, 7),
    "ramp": lambda: Ramp(10.0, 900.0, 3.0),
    "fall": lambda: Ramp(900.0, 10.0, 3.0),
    "intervals": lambda: Intervals(np.array([100, 0, 2500])),
    "fixed": lambda: Fixed(np.array([0.4, 0.1, 2.5])),
}
PIECES = st.lists(st.floats(0.001, 1.5), min_size=1, max_size=8)


def taken(schedule, pieces):
    return np.concatenate([schedule.take(each) for each in pieces])


@pytest.mark.parametrize("name", SCHEDULES)
@given(pieces=PIECES)
@settings(max_examples=30)
def test_times_do_not_depend_on_how_they_are_asked_for(name, pieces):
    in_pieces, at_once = taken(SCHEDULES[name](), pieces), SCHEDULES[name]().take(sum(pieces))

    common = min(len(in_pieces), len(at_once))
    assert abs(len(in_pieces) - len(at_once)) <= 1  # the end of all pieces is a rounded sum
    assert np.array_equal(in_pieces[:common], at_once[:common])


@pytest.mark.parametrize("name", SCHEDULES)
@given(pieces=PIECES)
@settings(max_examples=30)
def test_times_ascend_and_lie_in_the_seconds_that_were_asked_for(name, pieces):
    schedule, began = SCHEDULES[name](), 0.0
    for seconds in pieces:
        times = schedule.take(seconds)
        assert (np.diff(times) >= 0).all()
        if len(times):
            assert began * 1e9 - 2 <= times[0] and times[-1] <= (began + seconds) * 1e9 + 2
        began += seconds


@given(rate=st.floats(0.5, 20_000))
@settings(max_examples=50)
def test_constant_times_lie_where_the_rate_says(rate):
    times = Constant(rate).take(2.0)

    assert abs(times - np.arange(len(times)) * 1e9 / rate).max() < 2
    assert abs(len(times) - 2 * rate) <= 1


def test_poisson_gaps_are_exponential():
    gaps = np.diff(Poisson(1000.0, 3).take(20.0)) / 1e9

    assert gaps.mean() == pytest.approx(1e-3, rel=0.03)
    assert gaps.std() == pytest.approx(1e-3, rel=0.05)
    assert (gaps > 2e-3).mean() == pytest.approx(np.exp(-2), rel=0.1)


def test_another_seed_gives_other_times():
    assert not np.array_equal(Poisson(10.0, 1).take(5.0)[:20], Poisson(10.0, 2).take(5.0)[:20])


@pytest.mark.parametrize(("start", "end"), [(0.0, 1000.0), (100.0, 500.0), (500.0, 100.0), (300.0, 300.0)])
def test_a_ramp_has_the_rate_that_its_time_says(start, end):
    times = Ramp(start, end, 4.0).take(6.0) / 1e9

    for at in (1.0, 2.0, 3.0):
        due = start * at + (end - start) * at**2 / 8
        assert abs(int((times < at).sum()) - due) <= 1
    assert int(((times >= 4.0) & (times < 6.0)).sum()) == pytest.approx(2 * end, abs=2)


def test_intervals_are_repeated_for_ever():
    schedule = Intervals(np.array([1000, 3000]))

    assert schedule.take(0.009).tolist() == [1_000_000, 4_000_000, 5_000_000, 8_000_000]
    assert schedule.rate == pytest.approx(500)


def test_a_fixed_schedule_ends():
    schedule = Fixed(np.array([0.2, 0.1]))

    assert schedule.take(1.0).tolist() == [100_000_000, 200_000_000]
    assert schedule.take(1.0).tolist() == []


def test_a_file_of_intervals(tmp_path):
    path = tmp_path / "gaps"
    path.write_text("100\n\n 250 \n")

    assert read_intervals(str(path)).tolist() == [100, 250]


@pytest.mark.parametrize(
    ("text", "match"),
    [("10\nx\n", "line 2 is 'x'"), ("-4\n", "line 1 is '-4'"), ("", "no interval above 0"), ("0\n0\n", "above 0")],
)
def test_a_wrong_file_of_intervals_is_named_with_its_line(tmp_path, text, match):
    path = tmp_path / "gaps"
    path.write_text(text)

    with pytest.raises(BadRequest, match=match) as raised:
        read_intervals(str(path))
    assert str(path) in raised.value.message and "write" in raised.value.message


def test_a_missing_file_of_intervals(tmp_path):
    with pytest.raises(BadRequest, match="cannot be read"):
        read_intervals(str(tmp_path / "none"))


def test_periodic_steps():
    assert list(Periodic(2, 8, 3, 10).levels()) == [2, 5, 8]


@pytest.mark.parametrize("wrong", [(0, 4, 1, 1), (4, 2, 1, 1), (1, 4, 2, 1), (1, 4, 1, 0)])
def test_periodic_steps_that_do_not_fit(wrong):
    with pytest.raises(BadRequest, match=f"{wrong[0]}:{wrong[1]}:{wrong[2]}"):
        Periodic(*wrong)


@pytest.mark.parametrize(
    "make", [lambda: Constant(0), lambda: Poisson(-1, 0), lambda: Ramp(1, 0, 1), lambda: Constant(np.inf)]
)
def test_no_rate_below_0(make):
    with pytest.raises(BadRequest):
        make()
