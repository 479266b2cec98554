"""What the heads of HTTP/2 frames are held to before the library sees them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    reset,
)
from tisfast import limits
from tisfast.native import testing as native

LARGE = bytes(limits.HTTP2_SMALL_DATA_BYTES)


def gate(*frames):
    """A gate behind the preface and these frames."""
    made = native.new_gate()
    assert native.passed(made, PREFACE + b"".join(frames)) == PREFACE + b"".join(frames)
    return made


def begun(stream):
    return frame(HEADERS, END_HEADERS, stream, b"x")


def refused_after(made, data, most=20_000):
    """How many times it takes these bytes before it refuses the client, and why."""
    for count in range(most):
        native.passed(made, data)
        if native.refusal(made) is not None:
            return count, native.refusal(made)
    return most, None


def test_whole_frames_pass_as_they_are():
    frames = begun(1) + frame(DATA, 0, 1, LARGE) + frame(PING, 0, 0, bytes(8)) + frame(SETTINGS, 0, 0)
    made = gate(frames)
    assert native.refusal(made) is None


KINDS = st.sampled_from([DATA, HEADERS, RST_STREAM, CONTINUATION, SETTINGS, PING, WINDOW_UPDATE, 0x20])
FRAMES = st.builds(
    lambda kind, flags, stream, n: frame(kind, flags, stream, bytes(n)),
    KINDS, st.integers(0, 255), st.integers(0, 9), st.integers(0, 120),
)  # fmt: skip


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(1, 40), min_size=1, max_size=20))
@settings(max_examples=150)
def test_however_the_bytes_are_cut_the_same_ones_pass(frames, cuts):
    data = PREFACE + b"".join(frames)
    whole, cut = native.new_gate(), native.new_gate()
    expected, found, at, turn = native.passed(whole, data), b"", 0, 0
    while at < len(data):
        n = cuts[turn % len(cuts)]
        found += native.passed(cut, data[at : at + n])
        at, turn = at + n, turn + 1
    assert found == expected
    assert native.refusal(cut) == native.refusal(whole)


@given(st.lists(st.integers(0, 60), max_size=6), st.integers(1, 12))
def test_resets_of_calls_that_never_began_are_left_out_and_nothing_else(sizes, step):
    kept = b"".join(begun(1) + frame(DATA, 0, 1, bytes(n)) for n in sizes)
    data = PREFACE + kept + reset(2_001) + kept + reset(2_003) + kept
    made = native.new_gate()
    assert b"".join(native.passed(made, data[i : i + step]) for i in range(0, len(data), step)) == PREFACE + 3 * kept


@pytest.mark.parametrize(
    "told",
    [
        reset(1),  # it has begun
        reset(2),  # no number of a client's
        frame(RST_STREAM, 0, 3, bytes(5)),  # its length is an error that the library knows
        frame(RST_STREAM, 0, 3, b""),
    ],
)
def test_other_resets_are_the_library_s(told):
    gate(begun(1), told)


def test_a_reset_within_a_head_is_the_library_s_as_it_is_an_error():
    gate(frame(HEADERS, 0, 1, b"x"), reset(5))


def test_a_call_has_begun_with_the_highest_number_so_far():
    made = gate(begun(9))
    for stream in (1, 7, 9):
        assert native.passed(made, reset(stream)) == reset(stream)
    assert native.passed(made, reset(11)) == b""


def test_resets_are_bounded_and_more_are_allowed_with_time():
    made = gate(begun(1))
    assert refused_after(made, reset(1)) == (limits.HTTP2_RESETS_BURST, b"too_many_resets")
    made = gate(begun(1))
    for _ in range(limits.HTTP2_RESETS_BURST):
        native.passed(made, reset(1))
    native.second(made)
    assert refused_after(made, reset(1)) == (limits.HTTP2_RESETS_PER_SECOND, b"too_many_resets")


def test_seconds_do_not_add_up_beyond_the_burst():
    made = gate(begun(1))
    for _ in range(100):
        native.second(made)
    assert refused_after(made, reset(1)) == (limits.HTTP2_RESETS_BURST, b"too_many_resets")


IDLE = [
    frame(PING, 0, 0, bytes(8)),
    frame(SETTINGS, 0, 0),
    frame(WINDOW_UPDATE, 0, 1, struct.pack(">L", 1)),
    frame(DATA, 0, 1, b""),
    frame(DATA, 0, 1, LARGE[:-1]),
    frame(DATA, PADDED, 1, bytes([len(LARGE) - 1]) + LARGE),
    frame(0x20, 0, 0, LARGE),
    reset(2_001),
]


@pytest.mark.parametrize("idle", IDLE, ids=lambda data: f"kind {data[3]}, {len(data)} bytes")
def test_frames_that_move_nothing_are_bounded_within_a_second(idle):
    made = gate(begun(1))
    assert refused_after(made, idle) == (limits.HTTP2_IDLE_FRAMES_MAX - 1, b"too_many_idle_frames")


def test_frames_that_move_something_are_not_counted():
    made = gate(begun(1))
    assert refused_after(made, frame(DATA, 0, 1, LARGE)) == (20_000, None)


@pytest.mark.parametrize(("moved", "idle"), [(1, 4), (0, 0), (3, 12)])
def test_what_moves_excuses_some_idle_frames(moved, idle):
    made = gate(begun(1))
    ping = frame(PING, 0, 0, bytes(8))
    for _ in range(100):
        native.passed(made, ping)
    for _ in range(moved):
        native.moved(made)
    assert refused_after(made, ping)[0] == limits.HTTP2_IDLE_FRAMES_MAX - 101 + idle


def test_nothing_is_excused_in_advance():
    made = gate(begun(1))
    for _ in range(1000):
        native.moved(made)
    assert refused_after(made, frame(PING, 0, 0, bytes(8)))[0] == limits.HTTP2_IDLE_FRAMES_MAX - 1


def test_a_second_forgets_idle_frames_and_large_heads():
    made, ping = gate(begun(1)), frame(PING, 0, 0, bytes(8))
    for _ in range(limits.HTTP2_IDLE_FRAMES_MAX - 1):
        native.passed(made, ping)
    for _ in range(limits.HTTP2_LARGE_HEADS_MAX):
        native.count_large_head(made)
    native.second(made)
    for _ in range(limits.HTTP2_LARGE_HEADS_MAX):
        native.count_large_head(made)
    assert native.passed(made, ping) == ping
    native.count_large_head(made)
    assert native.refusal(made) == b"too_many_large_heads"


def test_a_head_of_many_frames_is_bounded_as_a_whole():
    most = limits.HTTP2_HEAD_BLOCK_BYTES_MAX
    made = gate(frame(HEADERS, 0, 1, bytes(most - 10)), frame(CONTINUATION, 0, 1, bytes(10)))
    assert native.passed(made, frame(CONTINUATION, 0, 1, b"x")) == b""
    assert native.refusal(made) == b"too_large_head"


def test_each_head_has_the_bound_for_itself():
    most = limits.HTTP2_HEAD_BLOCK_BYTES_MAX
    gate(*(frame(HEADERS, END_HEADERS, 2 * i + 1, bytes(most)) for i in range(5)))


def test_a_head_in_one_frame_that_is_too_large_is_refused():
    made = gate()
    assert native.passed(made, frame(HEADERS, END_HEADERS, 1, bytes(limits.HTTP2_HEAD_BLOCK_BYTES_MAX + 1))) == b""
    assert native.refusal(made) == b"too_large_head"


def test_a_frame_beyond_the_frame_size_has_the_library_s_own_error():
    head = frame(HEADERS, END_HEADERS, 1, b"", limits.HTTP2_FRAME_BYTES_MAX + 1)
    made = gate()
    assert native.passed(made, head) == head
    assert native.refusal(made) is None


def test_nothing_passes_behind_a_refusal():
    made = gate()
    native.count_large_head(made)
    large = frame(HEADERS, END_HEADERS, 1, bytes(limits.HTTP2_HEAD_BLOCK_BYTES_MAX + 1))
    assert native.passed(made, large + frame(PING, 0, 0, bytes(8))) == b""
