"""Numbers and strings as JSON text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.wire.text_buffer import number, quote


@given(st.integers(-(2**63), 2**64 - 1))
def test_numbers(value):
    assert number(value) == str(value).encode()


@pytest.mark.parametrize("value", [0, -(2**63), 2**63 - 1, 2**64 - 1])
def test_the_last_numbers(value):
    assert number(value) == str(value).encode()


@given(st.text())
def test_strings_are_read_back_by_json(text):
    data = text.encode("utf-8", "replace")
    assert json.loads(quote(data)) == data.decode()


@given(st.binary())
def test_bytes_beyond_ascii_pass_unchanged(data):
    inner = quote(data)[1:-1]
    assert [b for b in inner if b >= 0x80] == [b for b in data if b >= 0x80]
