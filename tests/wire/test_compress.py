"""gzip and deflate of bodies, and their bounds."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.errors import BadRequest, Internal, Unsupported
from tisfast.limits import GZIP_MEMBERS_MAX
from tisfast.wire.compress import CODINGS, beginning, check_coding, choose, compress, decompress

MOST = 1 << 20
BY_HAND = {"gzip": gzip.compress, "deflate": zlib.compress}


@given(st.sampled_from(CODINGS), st.binary(max_size=2000))
def test_what_is_compressed_comes_back(coding, data):
    assert decompress(coding, compress(coding, data), MOST) == data
    assert decompress(coding, BY_HAND[coding](data), MOST) == data


def test_a_body_of_many_steps():
    data = bytes(range(256)) * 3000
    assert decompress("gzip", gzip.compress(data, 0), MOST) == data


@pytest.mark.parametrize("coding", CODINGS)
def test_the_limit_is_exact_and_a_bomb_stops_there(coding):
    assert len(decompress(coding, BY_HAND[coding](bytes(1000)), 1000)) == 1000
    with pytest.raises(BadRequest, match="maximum allowed value of 999 bytes. Use --http-max-input-size"):
        decompress(coding, BY_HAND[coding](bytes(1000)), 999)
    with pytest.raises(BadRequest, match="--http-max-input-size"):
        decompress(coding, BY_HAND[coding](bytes(300 << 20)), MOST)


def test_members_of_gzip_are_joined_and_bounded():
    member = gzip.compress(b"x")
    assert decompress("gzip", member * GZIP_MEMBERS_MAX, MOST) == b"x" * GZIP_MEMBERS_MAX
    with pytest.raises(BadRequest, match="more than 1024 gzip members"):
        decompress("gzip", member * (GZIP_MEMBERS_MAX + 1), MOST)


@pytest.mark.parametrize("coding", CODINGS)
def test_what_is_not_in_that_coding_is_refused(coding):
    with pytest.raises(BadRequest, match=f"not in the {coding} format"):
        decompress(coding, b"{}" * 20, MOST)
    with pytest.raises(BadRequest, match="ends before its data does"):
        decompress(coding, BY_HAND[coding](b"abcdef")[:-3], MOST)
    with pytest.raises(BadRequest, match="ends before its data does"):
        decompress(coding, b"", MOST)


def test_junk_behind_the_data_passes_as_it_does_with_triton():
    assert decompress("gzip", gzip.compress(b"a") + b"junk", MOST) == b"a"


def test_other_codings_are_unsupported():
    check_coding("")
    for coding in ("br", "gzip, deflate", "x-gzip"):
        with pytest.raises(Unsupported, match="^Unsupported compression type$"):
            decompress(coding, b"", MOST)
    with pytest.raises(Internal):
        compress("br", b"")


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("", ""),
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip; q=0.5, deflate ; q=0.4", "gzip"),
        ("identity;q=0.5,gzip;q=0.5", ""),
        ("gzip;q=0.5,identity;q=0.5", "gzip"),
        ("gzip;q=0", ""),
        ("gzip;q=abc", ""),
        ("br, *", ""),
        ("br, gzip", "gzip"),
        ("GZIP", ""),
    ],
)
def test_the_clients_best_coding(accept, coding):
    assert choose(accept) == coding


@pytest.mark.parametrize("coding", CODINGS)
@given(data=st.binary(max_size=3000), most=st.integers(0, 3500))
def test_the_beginning_of_a_body_is_expanded_without_the_rest(coding, data, most):
    whole = BY_HAND[coding](data)
    assert beginning(coding, whole, most or 1) == data[: most or 1]
    assert data.startswith(beginning(coding, whole[: len(whole) // 2], MOST))


@pytest.mark.parametrize("coding", CODINGS)
def test_the_beginning_of_what_is_none_is_refused(coding):
    with pytest.raises(BadRequest) as caught:
        beginning(coding, b"{}" * 20, MOST)
    assert caught.value.message.startswith(f"request body is not in the {coding} format its Content-Encoding says: ")
    with pytest.raises(Unsupported, match="^Unsupported compression type$"):
        beginning("br", b"", MOST)


@given(st.lists(st.binary(max_size=50), max_size=6), st.sampled_from(CODINGS))
def test_a_body_in_parts_is_one_body(parts, coding):
    assert decompress(coding, compress(coding, *parts), MOST) == b"".join(parts)
    assert decompress(coding, compress(coding, *map(bytearray, parts)), MOST) == b"".join(parts)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("cut", [1, 2, 5, -1, -4])
def test_a_body_that_ends_early_says_how_much_came(coding, cut):
    data = BY_HAND[coding](b"abcdef" * 9)[:cut]
    with pytest.raises(BadRequest) as caught:
        decompress(coding, data, MOST)
    text = f"request body in {coding} format ends before its data does ({len(data)} bytes received)"
    assert caught.value.message == text
