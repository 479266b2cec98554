"""Sequences: the flags and ids that the server sees."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.client.helpers import ANSWER, METADATA, answering, in_turn, read_request, respond
from tisfast.client import BadRequest, Client, ConnectionLost, TimedOut

A = np.ones(1, np.float32)
START, END = 1, 2


def flags(result) -> tuple[int, object]:
    found = json.loads(result.item())
    return found["flags"], found["correlation"]


def test_start_and_end_are_told(client):
    with client.model("facts").sequence() as ask:
        assert [flags(ask(A)), flags(ask(A)), flags(ask(A, last=True))] == [(START, ask.id), (0, ask.id), (END, ask.id)]
        with pytest.raises(BadRequest, match="has ended; begin another one"):
            ask(A)


def test_a_sequence_of_one_request_and_a_name_of_ones_own(client):
    with client.model("facts").sequence("café-1") as ask:
        assert flags(ask(A, last=True)) == (START | END, "café-1")


def test_ids_are_nobody_elses(client):
    model = client.model("facts")
    assert len({model.sequence().id for _ in range(100)}) == 100


def test_an_end_that_nobody_marked_is_sent_when_the_block_is_left(client):
    model = client.model("counting")
    with model.sequence() as ask:
        before = ask([[4]])
        assert ask([[5]]).SUM.item() == 9
    with model.sequence() as ask:
        after = ask([[1]])
        assert after.SUM.item() == 1
    starts, ends = (after.COUNTS - before.COUNTS)[0].tolist()
    assert (starts, ends) == (1, 1)
    with model.sequence():
        pass  # nothing was asked, so there is nothing to end


def test_a_block_that_is_left_by_an_error_ends_the_sequence_and_shows_the_error(client):
    model = client.model("counting")
    with pytest.raises(ZeroDivisionError), model.sequence() as ask:
        before = ask([[4]])
        raise ZeroDivisionError
    with model.sequence() as ask:
        assert (ask([[1]]).COUNTS - before.COUNTS)[0].tolist() == [1, 1]


def test_a_value_that_was_refused_does_not_hinder_the_end(client):
    model = client.model("counting")
    with model.sequence() as ask:
        before = ask([[4]])
        with pytest.raises(BadRequest):
            ask([["four"]])
    with model.sequence() as ask:
        assert (ask([[1]]).COUNTS - before.COUNTS)[0].tolist() == [1, 1]


def test_a_last_request_that_was_lost_is_not_sent_again():
    asked = []

    def lose(connection) -> None:
        asked.append(read_request(connection))

    with (
        answering(in_turn(respond(METADATA), respond(ANSWER), lose)) as address,
        Client(address) as client,
        client.model("m").sequence() as ask,
    ):
        ask(A)
        with pytest.raises(ConnectionLost):
            ask(A, last=True)
    assert len(asked) == 1


def test_a_block_that_is_left_because_its_time_is_over_does_not_wait_for_a_server_that_hangs():
    left = []

    def hang(connection) -> None:
        read_request(connection)
        connection.settimeout(60)
        try:
            left.append(connection.recv(1))  # b"" when the client leaves
        except TimeoutError:
            left.append(None)

    with (
        answering(in_turn(respond(METADATA), respond(ANSWER), hang), hang) as address,
        Client(address) as client,
        pytest.raises(TimedOut),
        client.model("m").sequence() as ask,
    ):
        ask(A)
        ask(A, timeout=0.2)
    assert set(left) == {b""}
