"""The worker's msgpack subset against the C library, both ways."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tisfast_worker import msgpack as ours

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=40,
)


@given(values)
def test_what_we_write_the_library_reads(value):
    assert msgpack.unpackb(ours.encode(value)) == value


@given(values)
def test_what_the_library_writes_we_read(value):
    assert ours.decode(msgpack.packb(value)) == value


@pytest.mark.parametrize("size", [31, 32, 255, 256, 65535, 65536])
def test_lengths_at_the_edges_of_their_forms(size):
    for value in ("x" * size, b"x" * size, [1] * size, {str(i): i for i in range(size)}):
        assert msgpack.unpackb(ours.encode(value)) == value
        assert ours.decode(msgpack.packb(value)) == value


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_an_error(data):
    with contextlib.suppress(ours.MsgpackError):
        ours.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x92\x01",
        b"\xdd\xff\xff\xff\xff\x01",
        b"\xc6\xff\xff\xff\xff",
        b"\xc1",
        b"\xd4\x01\x00",
        b"\x01\x02",
        b"\x91" * 99,
    ],
)
def test_short_long_deep_and_foreign_messages_are_refused(data):
    with pytest.raises(ours.MsgpackError):
        ours.decode(data)


def test_lone_surrogates_of_a_models_output_do_not_break_a_message():
    assert ours.decode(ours.encode("a\udcffb")) == "a?b"
