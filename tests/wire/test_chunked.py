"""Chunked transfer coding: whatever the splits, the same body; whatever is not chunked coding, refused."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.errors import BadRequest
from tisfast.limits import HTTP_CHUNKS_MAX
from tisfast.wire.chunked import ChunkDecoder

MOST = 1 << 20


def encode(chunks, trailer=b""):
    return b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks if c) + b"0\r\n" + trailer + b"\r\n"


def decode(parts, most=MOST):
    decoder, out, used = ChunkDecoder(), BytesIO(), 0
    for part in parts:
        used += decoder.decode(part, out, most)
        if decoder.done:
            break
    return decoder, out.getvalue(), used


@given(st.lists(st.binary(max_size=50)), st.binary(max_size=20), st.lists(st.integers(0, 400)), st.booleans())
def test_any_split_gives_the_same_body_and_leaves_what_follows(chunks, rest, cuts, trailer):
    coded = encode(chunks, b"X-Note: 1\r\n" if trailer else b"")
    data = coded + rest
    at = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    decoder, out, used = decode([data[a:b] for a, b in zip(at, at[1:], strict=False)])
    assert decoder.done
    assert out == b"".join(chunks)
    assert used == len(coded)


def test_sizes_may_carry_extensions_and_either_case():
    assert decode([b"A;name=value\r\n0123456789\r\na \r\nabcdefghij\r\n0\r\n\r\n"])[1] == b"0123456789abcdefghij"


@pytest.mark.parametrize(
    ("data", "culprit"),
    [
        (b"\r\n", "chunk size expected"),
        (b"-1\r\n", "chunk size expected"),
        (b"0x5\r\n", "chunk size expected"),
        (b"g\r\n", "chunk size expected"),
        (b"5\nhello\r\n", "chunk size expected"),
        (b"5;x\nhello", "bare line feed"),
        (b"5\r\nhelloX", "0x0d expected"),
        (b"5\r\nhello\rX", "0x0a expected"),
        (b"ffffffffffffffff\r\n", "15 hex digits"),
        (b"5\rhello", "0x0a expected"),
        (b"1;" + b"x" * 70000, "exceeds 65536 bytes"),
    ],
)
def test_what_is_not_chunked_coding_is_refused_with_the_culprit(data, culprit):
    with pytest.raises(BadRequest, match=culprit):
        decode([data])


def test_the_body_is_bounded():
    with pytest.raises(BadRequest, match="exceeds 10 bytes"):
        decode([encode([b"123456", b"78901"])], most=10)


def test_the_number_of_chunks_is_bounded():
    with pytest.raises(BadRequest, match=f"more than {HTTP_CHUNKS_MAX} chunks"):
        decode([b"1\r\nx\r\n" * (HTTP_CHUNKS_MAX + 1)])
