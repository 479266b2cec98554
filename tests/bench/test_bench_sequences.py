"""Sequences: each begins and ends once, ids are unique among those under way, lengths vary as asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tisfast.bench.sequences import Plan, Sequences
from tisfast.errors import BadRequest


@given(
    streams=st.lists(st.integers(1, 6), max_size=4),
    length=st.none() | st.integers(1, 9),
    in_flight=st.integers(1, 5),
    choices=st.lists(st.integers(0, 4), max_size=80),
)
def test_sequences_begin_and_end_once_and_never_share_an_id(streams, length, in_flight, choices):
    plan = Plan(tuple(streams), length, id_begin=7, id_end=13, in_flight=in_flight)
    sequences, playing = Sequences(plan, seed=1), {}
    turns: dict[object, list] = {}
    for choice in choices:
        slot = choice % in_flight
        if slot not in playing:
            playing[slot] = sequences.begin()
            assert playing[slot].sequence_id not in {each.sequence_id for at, each in playing.items() if at != slot}
        one = playing[slot]
        turns.setdefault(one, []).append(one.take())
        if one.done:
            del playing[slot]
    for one, given_turns in turns.items():
        assert [turn.start for turn in given_turns] == [True] + [False] * (len(given_turns) - 1)
        assert [turn.end for turn in given_turns[:-1]] == [False] * (len(given_turns) - 1)
        assert given_turns[-1].end == one.done
        assert {turn.sequence_id for turn in given_turns} == {one.sequence_id}
        assert 7 <= one.sequence_id < 13
        steps = streams[one.stream] if streams else 1
        assert [turn.step for turn in given_turns] == [at % steps for at in range(len(given_turns))]
    assert sequences.in_use == {each.sequence_id for each in playing.values()}


def test_without_a_length_a_stream_is_played_once():
    sequences = Sequences(Plan((3, 5), None, in_flight=50))

    assert {(each.stream, each.length) for each in (sequences.begin() for _ in range(50))} == {(0, 3), (1, 5)}


def test_lengths_vary_by_so_many_percent():
    sequences = Sequences(Plan((), 100, variation=20.0, in_flight=500))
    lengths = [sequences.begin().length for _ in range(500)]

    assert min(lengths) >= 80 and max(lengths) <= 120
    assert min(lengths) < 85 and max(lengths) > 115
    assert {Sequences(Plan((), 100, variation=0.0)).begin().length for _ in range(9)} == {100}


def test_the_same_seed_gives_the_same_sequences():
    def made(seed):
        sequences = Sequences(Plan((2, 3, 4), 50, in_flight=20), seed)
        return [(each.stream, each.length) for each in (sequences.begin() for _ in range(20))]

    assert made(3) == made(3) != made(4)


def test_ids_go_round_and_one_in_use_is_skipped():
    sequences = Sequences(Plan((), 1, 0.0, id_begin=1, id_end=4, in_flight=3))
    held = sequences.begin()
    ids = []
    for _ in range(4):
        one = sequences.begin()
        one.take()
        ids.append(one.sequence_id)

    assert held.sequence_id == 1
    assert ids == [2, 3, 2, 3]


def test_a_level_that_ends_cuts_its_sequences():
    sequences = Sequences(Plan((), 10, 0.0))
    one = sequences.begin()
    one.take()

    assert one.cut()[3:] == (False, True)
    assert one.done and not sequences.in_use
    with pytest.raises(ValueError, match="has ended"):
        one.take()


def test_no_more_sequences_than_may_be_at_one_time():
    sequences = Sequences(Plan(in_flight=1))
    sequences.begin()

    with pytest.raises(BadRequest, match="1 sequences are under way"):
        sequences.begin()


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"length": 0}, "--sequence-length is 0"),
        ({"variation": 101.0}, "--sequence-length-variation is 101"),
        ({"id_begin": 5, "id_end": 5}, "--sequence-id-range is 5:5"),
        ({"id_begin": 0}, "--sequence-id-range is 0:"),
        ({"id_begin": 1, "id_end": 4, "in_flight": 4}, "has 3 ids for 4 sequences"),
        ({"streams": (0,)}, "no steps"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(wrong, match):
    with pytest.raises(BadRequest, match=match):
        Plan(**wrong)
