"""Whole numbers in texts of flags, variables and parameters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.config.whole_numbers import whole_number


@pytest.mark.parametrize(
    ("text", "most", "number"),
    [("0", 9, 0), ("9", 9, 9), ("10", 9, None), ("009", 9, 9), ("000", 0, 0), ("1", 0, None), ("0" * 5000 + "7", 9, 7)],
)
def test_the_ends_of_what_may_be(text, most, number):
    assert whole_number(text, most) == number


@pytest.mark.parametrize("text", ["", " ", "-0", "+1", "1.0", "1_000", " 1", "1 ", "0x1", "1e3", "٣", "²", "one", "\0"])
def test_what_is_no_row_of_digits_is_no_number(text):
    assert whole_number(text, 10**9) is None


def test_thousands_of_digits_are_above_every_bound():
    assert whole_number("9" * 100_000, 2**64) is None


@given(st.integers(0, 2**70), st.integers(0, 2**70), st.integers(0, 5))
def test_a_number_is_read_where_it_is_within_the_bound(number, most, zeros):
    assert whole_number("0" * zeros + str(number), most) == (number if number <= most else None)
