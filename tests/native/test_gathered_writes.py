"""The pieces of one gathered write: what lies together is one piece, what is borrowed is kept alive."""

from __future__ import annotations

import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from tisfast.native.gather_write import Outgoing

from tisfast import tuning
from tisfast.native import testing as native

PIECES_MAX = 512
TEXT_BYTES = (1 << 16) + 8192


def test_texts_that_follow_each_other_are_one_piece():
    out = Outgoing()
    for text in (b"one", b"", b"two"):
        native.put(out, text)
    assert native.pieces(out) == [b"onetwo"]
    assert native.owners(out) == []


def test_a_borrowed_piece_lies_between_texts():
    out = Outgoing()
    native.put(out, b"head")
    native.add(out, b"body")
    native.put(out, b"tail")
    native.put(out, b"more")
    assert native.pieces(out) == [b"head", b"body", b"tailmore"]
    assert native.nbytes(out) == 16


def test_what_is_borrowed_is_kept_until_it_was_written():
    out, body = Outgoing(), bytes(1000)
    before = sys.getrefcount(body)
    for _ in range(3):
        native.add(out, body)
    assert native.owners(out) == [body], "once for neighbours"
    assert sys.getrefcount(body) == before + 1
    native.clear_pieces(out)
    assert sys.getrefcount(body) == before
    assert (native.pieces(out), native.owners(out), native.nbytes(out)) == ([], [], 0)


def test_an_owner_that_comes_again_later_is_kept_again():
    out, first, second = Outgoing(), b"first" * 9, b"second" * 9
    for each in (first, second, first):
        native.add(out, each)
    assert native.owners(out) == [first, second, first]


STEPS = st.lists(st.tuples(st.booleans(), st.binary(max_size=300)), max_size=200)


@given(st.lists(STEPS, min_size=1, max_size=3))
@settings(max_examples=60)
def test_the_bytes_are_those_that_were_put_in_order(writes):
    out = Outgoing()
    for steps in writes:
        expected = b""
        for borrowed, data in steps:
            (native.add if borrowed else native.put)(out, data)
            expected += data
        assert b"".join(native.pieces(out)) == expected
        assert native.nbytes(out) == len(expected)
        native.clear_pieces(out)


def test_a_write_is_full_of_pieces():
    out, body = Outgoing(), b"x"
    for count in range(1, PIECES_MAX + 2):
        assert not native.full(out)
        native.add(out, body)
        assert len(native.pieces(out)) == count
    assert native.full(out)
    native.clear_pieces(out)
    assert not native.full(out)


def test_a_write_is_full_of_bytes():
    out = Outgoing()
    native.add(out, bytes(tuning.GRPC_WRITE_BYTES_MAX))
    assert not native.full(out)
    native.add(out, b"x")
    assert native.full(out)


def test_a_write_is_full_of_text_while_there_is_room_for_one_step_more():
    out, text = Outgoing(), bytes(1000)
    while not native.full(out):
        native.put(out, text)
    assert len(native.pieces(out)) == 1
    # A frame's head, a copied piece of a body, and trailers: what one step of the library puts at most.
    native.put(out, bytes(9))
    native.put(out, bytes(4096 - 1000))
    native.put(out, bytes(16384 + 64))
    assert native.nbytes(out) <= TEXT_BYTES
