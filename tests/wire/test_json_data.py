"""JSON texts and JSON tensor data."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.errors import BadRequest, Internal
from tisfast.types import BY_WIRE
from tisfast.wire import json_data


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.floats(), st.lists))
def test_texts_that_pythons_json_writes(value):
    assert str(json_data.load(json.dumps(value).encode())) == str(value)


def test_tokens_inside_strings_stay():
    assert json_data.load(b'[-Inf, "NaN \\" Inf", -NaN]')[:2] == [-math.inf, 'NaN " Inf']


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", Internal),
        (b"{", Internal),
        (b"[NaN", Internal),
        (b"[NaNa]", Internal),
        (b"\xff", Internal),
        (b'["\xffNaN"]', Internal),
        (b'[NaN, "\\ud800"]', Internal),
        (b'[NaN, "\xed\xa0\x80"]', Internal),
        (b"[" * 5000, BadRequest),
        (b"[NaN," + b"[" * 900 + b"]" * 900 + b"]" * 2, Internal),
        (b"[NaN," + b"9" * 5000 + b"]", Internal),
    ],
)
def test_broken_texts(text, error):
    with pytest.raises(error):
        json_data.load(text)


def test_half_a_surrogate_is_no_text():
    with pytest.raises(Internal, match="text is not valid UTF-8"):
        json_data.load(b'{"x":"\xed\xa0\x80","y":NaN}')


@pytest.mark.parametrize("value", [b"[]", b"{}", b"[1]", b'"ab"', b'{"a":1}'])
def test_values_that_take_many_times_their_text_are_refused(value):
    text = b"[" + (value + b",") * 3_000_000 + b"1]"
    with pytest.raises(BadRequest, match="is the limit for so many.  Send large tensors as binary data"):
        json_data.load(text)


def test_one_wide_character_among_many_words_is_refused():
    with pytest.raises(BadRequest, match="with Inf in it would take"):
        json_data.load(b'["\xf0\x9f\x98\x80",' + b"Inf," * 4_000_000 + b"1]")
    assert len(json_data.load(b"[" + b"Inf," * 400_000 + b"1]")) == 400_001


@pytest.mark.parametrize("value", [b"1", b"250", b"0.5", b"true", b'"abcdefg"', b"[0.1234567]"])
def test_tensors_that_are_spelled_out_are_taken(value):
    assert len(json_data.load(b"[" + (value + b",") * 1_200_000 + b"1]")) == 1_200_001


@given(st.data(), st.sampled_from(["INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"]))
def test_integers_fit_or_are_refused_by_name(data, dtype):
    kind = BY_WIRE[dtype]
    signed = dtype.startswith("INT")
    low = -(2 ** (8 * kind.size - 1)) if signed else 0
    high = low + 2 ** (8 * kind.size) - 1
    value = data.draw(st.integers(low - 2, high + 2) | st.sampled_from([low - 1, low, high, high + 1]))
    if low <= value <= high:
        assert json_data.numbers([value], kind.code, 1, kind.size) == value.to_bytes(kind.size, "little", signed=signed)
    else:
        with pytest.raises((BadRequest, Internal), match="input 'test'"):
            json_data.numbers([value], kind.code, 1, kind.size)


@given(st.recursive(st.floats(width=32), lambda inner: st.lists(inner, max_size=4), max_leaves=20))
def test_nesting_only_orders(value):
    def leaves(item):
        return [leaf for part in item for leaf in leaves(part)] if isinstance(item, list) else [item]

    flat = leaves([value])
    assert json_data.numbers([value], 11, len(flat), 4) == struct.pack(f"<{len(flat)}f", *flat)


def test_a_number_beyond_double_is_refused():
    with pytest.raises(Internal, match="Number too big to be stored in double"):
        json_data.numbers([10**400], 11, 1, 4)
