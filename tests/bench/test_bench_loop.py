"""The load's loop against a server in this process: what is sent, when, and what is counted of it."""

from __future__ import annotations

import json
import socket
import threading
import time

import numpy as np
import pytest

from tests.bench.stub_server import StubServer
from tisfast.bench.http_load import HttpLoad
from tisfast.bench.loop import Loop
from tisfast.bench.results import FAILED, RECORD
from tisfast.bench.sequences import Plan, Player, Sequences
from tisfast.bench.templates import Form, Step, http_templates
from tisfast.client.address import parse_url
from tisfast.errors import Unavailable
from tisfast.wire.buffer_tensor import BufferTensor

SECOND = 1_000_000_000
STEP = Step([BufferTensor("A", "FP32", (1, 4), np.arange(4, dtype=np.float32))])


@pytest.fixture
def loop_of():
    """Loops of a port, with `steps` of input data; closed in the end."""
    made = []

    def make(
        port: int,
        slots: int = 4,
        connections_max: int = 4,
        steps: tuple[Step, ...] = (STEP,),
        player: Player | None = None,
    ) -> Loop:
        form = Form(parse_url(f"127.0.0.1:{port}"), "stub", sequences=player is not None)
        templates = http_templates(form, steps)
        address, most = ("127.0.0.1", port), connections_max
        made.append(
            Loop(address, socket.AF_INET, HttpLoad, templates, slots=slots, connections_max=most, player=player)
        )
        return made[-1]

    yield make
    for loop in made:
        loop.close()


def done(loop: Loop, seconds: float = 20) -> bool:
    """Run until all that may be sent has been answered."""
    return not loop.run(time.monotonic_ns() + int(seconds * SECOND))


def test_a_closed_loop_sends_as_many_requests_as_it_may_and_counts_the_answers(loop_of):
    with StubServer() as server:
        loop = loop_of(server.port)
        loop.open_connections(3)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(50)
        loop.keep_in_flight(3)
        assert done(loop)
        tally = loop.swap()
    assert (server.count, tally.requests, tally.completed, tally.failed, tally.responses) == (50, 50, 50, 0, 50)
    assert tally.response.count == tally.service.count == tally.first_byte.count == 50
    assert tally.sent_bytes > 50 * 16
    assert tally.received_bytes > 50 * 16


def test_never_more_requests_are_under_way_than_were_asked_for(loop_of):
    present, most, lock = [0], [0], threading.Lock()
    both = threading.Barrier(2)

    def answering(number: int) -> str:
        with lock:
            present[0] += 1
            most[0] = max(most[0], present[0])
        if number <= 2:
            both.wait(20)  # so two are there at one time
        with lock:
            present[0] -= 1
        return ""

    with StubServer(answering) as server:
        loop = loop_of(server.port)
        loop.open_connections(2)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(40)
        loop.keep_in_flight(2)
        assert done(loop)
    assert most == [2]


def test_the_latency_of_an_open_loop_counts_from_the_intended_time(loop_of):
    """Requests that were due a second ago have waited for a second, however fast the server is."""
    with StubServer() as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(3)
        loop.follow(np.array([time.monotonic_ns() - SECOND] * 3))
        assert done(loop)
        tally = loop.swap()
    assert tally.completed == tally.delayed == 3
    assert tally.response.minimum >= SECOND
    assert tally.lateness.minimum >= SECOND
    assert tally.service.sum <= tally.response.sum - 3 * SECOND


def test_a_request_whose_time_has_not_come_does_not_go(loop_of):
    with StubServer() as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.follow(np.array([time.monotonic_ns(), time.monotonic_ns() + 3600 * SECOND]))
        while not loop.tally.completed:
            loop.run(time.monotonic_ns() + SECOND // 10)
        loop.run(time.monotonic_ns() + SECOND // 10)
        assert (server.count, loop.scheduled) == (1, 1)
        assert loop.end() == 0
        assert loop.scheduled == 0


def test_no_more_go_in_the_end_than_were_allowed(loop_of):
    with StubServer() as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(2)
        loop.follow(np.full(5, time.monotonic_ns()))
        assert done(loop)
        assert (loop.end(), loop.scheduled) == (0, 0)
        assert done(loop)
    assert server.count == 2


def test_an_open_loop_opens_further_connections_where_all_are_busy(loop_of):
    both = threading.Barrier(3)

    def answering(_: int) -> str:
        both.wait(20)
        return ""

    with StubServer(answering) as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(3)
        loop.follow(np.full(3, time.monotonic_ns()))
        assert done(loop)
        assert loop.swap().completed == 3
        assert loop.connections == 3


def test_errors_are_counted_by_their_text_and_the_load_goes_on(loop_of):
    with StubServer(lambda number: "no luck" if number % 5 == 0 else "") as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(20)
        loop.keep_in_flight(1)
        assert done(loop)
        errors, first = loop.swap_errors()
        tally = loop.swap()
    assert (tally.completed, tally.failed) == (16, 4)
    assert errors == {("500", "no luck"): 4}
    assert first[0] == "no luck"


def test_a_dropped_connection_is_an_error_and_is_opened_again(loop_of):
    with StubServer(lambda number: "drop" if number == 3 else "") as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(10)
        loop.keep_in_flight(1)
        assert done(loop)
        errors, _ = loop.swap_errors()
        tally = loop.swap()
    assert (tally.completed, tally.failed) == (9, 1)
    assert [status for status, _ in errors] == ["connection"]


def test_a_server_that_is_gone_ends_the_load(loop_of):
    server = StubServer()
    with server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
    loop.keep_in_flight(1)
    with pytest.raises(Unavailable, match=r"cannot be reached for 3 s: cannot connect: Connection refused"):
        loop.run(time.monotonic_ns() + 60 * SECOND)


@pytest.fixture
def silent():
    """A port that drops who connects: its queue is full.  `silent.accept()` gives the connections that came before."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        yield listener


def fill(listener: socket.socket) -> list[socket.socket]:
    """Connections until none is answered any more."""
    filling = []
    while True:
        filling.append(socket.socket())
        filling[-1].settimeout(0.5)
        try:
            filling[-1].connect(listener.getsockname())
        except TimeoutError:
            return filling


def test_a_host_that_drops_packets_is_gone(loop_of, silent):
    loop = loop_of(silent.getsockname()[1])
    loop.open_connections(1)
    assert loop.ready(time.monotonic_ns() + 10 * SECOND)
    accepted, _ = silent.accept()
    filling = fill(silent)
    accepted.close()
    loop.keep_in_flight(1)
    with pytest.raises(Unavailable, match=r"cannot be reached for 3 s: the server closed the connection"):
        loop.run(time.monotonic_ns() + 60 * SECOND)
    for each in filling:
        each.close()


def test_a_server_that_closes_idle_connections_is_not_gone(loop_of, silent):
    """One after the other, each after more than 3 s, and no request was due meanwhile."""
    loop = loop_of(silent.getsockname()[1], connections_max=1)
    loop.open_connections(1)
    for _ in range(2):
        accepted, _ = silent.accept()
        loop.run(time.monotonic_ns() + 7 * SECOND // 2)
        accepted.close()
        loop.run(time.monotonic_ns() + SECOND // 2)
    assert loop.opened == 1


def test_a_connect_that_nobody_answers_ends(loop_of, silent):
    filling = fill(silent)
    loop = loop_of(silent.getsockname()[1])
    loop.open_connections(1)
    assert not loop.ready(time.monotonic_ns() + 60 * SECOND)
    assert loop.lost_text == "cannot connect: no answer within 10 s"
    for each in filling:
        each.close()


def test_an_open_loop_opens_as_many_connections_at_one_time_as_requests_wait(loop_of, silent):
    """None of them is answered, so one after the other would be one."""
    filling = fill(silent)
    loop = loop_of(silent.getsockname()[1], slots=8, connections_max=8)
    loop.follow(np.full(5, time.monotonic_ns()))
    loop.run(time.monotonic_ns() + SECOND // 10)
    assert loop.connections == 5
    for each in filling:
        each.close()


def test_sequences_begin_and_end_in_what_is_sent_and_are_cut_in_the_end(loop_of):
    player = Player(Sequences(Plan((), 3, 0.0, id_begin=9, id_end=4_000_000_000)), [0], 1)
    with StubServer() as server:
        loop = loop_of(server.port, player=player)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(7)
        loop.keep_in_flight(1)
        assert done(loop)
        tally = loop.swap()
        loop.finish()
        assert done(loop)
    told = [json.loads(body[: body.rindex(b"}") + 1])["parameters"] for body in server.bodies]
    assert [(each["sequence_id"], each["sequence_start"], each["sequence_end"]) for each in told] == [
        (9, True, False), (9, False, False), (9, False, True),
        (10, True, False), (10, False, False), (10, False, True),
        (11, True, False), (11, False, True),
    ]  # fmt: skip
    assert (tally.completed, tally.sequences) == (7, 2)
    assert loop.swap().completed == 0  # what only ends a sequence is no figure


def test_a_sequence_whose_request_has_failed_is_sent_no_further(loop_of):
    player = Player(Sequences(Plan((), 3, 0.0)), [0], 1)
    with StubServer(lambda number: "no luck" if number == 2 else "") as server:
        loop = loop_of(server.port, player=player)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(4)
        loop.keep_in_flight(1)
        assert done(loop)
    told = [json.loads(body[: body.rindex(b"}") + 1])["parameters"] for body in server.bodies]
    assert [each["sequence_id"] for each in told[:4]] == [1, 1, 2, 2]
    assert [each["sequence_start"] for each in told[:4]] == [True, False, True, False]


def test_no_server_is_told_at_once(loop_of):
    with StubServer() as server:
        port = server.port
    loop = loop_of(port)
    loop.open_connections(1)
    assert not loop.ready(time.monotonic_ns() + 60 * SECOND)
    assert loop.lost_text == "cannot connect: Connection refused"


def test_each_step_of_the_input_data_is_sent_in_its_turn(loop_of):
    steps = tuple(Step([BufferTensor("A", "FP32", (1, 4), np.full(4, value, np.float32))]) for value in (1, 2, 3))
    with StubServer() as server:
        loop = loop_of(server.port, steps=steps)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(6)
        loop.keep_in_flight(1)
        assert done(loop)
    assert [np.frombuffer(body[-16:], np.float32)[0] for body in server.bodies] == [1, 2, 3, 1, 2, 3]


def test_records_tell_each_request(loop_of):
    with StubServer(lambda number: "no luck" if number == 2 else "") as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.keep_records(3)
        loop.allow(4)
        loop.keep_in_flight(1)
        assert done(loop)
        records, missed, stamps, _ = loop.swap_records()
        assert stamps is None
    assert records.dtype == RECORD
    assert missed == 1
    assert records["status"].tolist() == [200, 500, 200]
    assert records["flags"].tolist() == [0, FAILED, 0]
    assert (records["intended"] <= records["sent"]).all()
    assert (records["sent"] < records["first"]).all()
    assert (records["first"] <= records["last"]).all()
    assert (np.diff(records["last"]) > 0).all()


def test_an_answer_that_the_check_does_not_like_is_an_error(loop_of):
    step = Step(STEP.tensors, check=lambda answer: "" if answer.output("B").nbytes == 16 else "wrong size")
    other = Step(STEP.tensors, check=lambda answer: f"output of {answer.model} is not what was expected")
    with StubServer() as server:
        loop = loop_of(server.port, steps=(step, other))
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(4)
        loop.keep_in_flight(1)
        assert done(loop)
        errors, _ = loop.swap_errors()
    assert errors == {("200", "output of stub is not what was expected"): 2}


def test_texts_of_errors_beyond_the_bound_are_counted_together(loop_of):
    with StubServer(lambda number: f"error {number}") as server:
        loop = loop_of(server.port)
        loop.open_connections(1)
        assert loop.ready(time.monotonic_ns() + 10 * SECOND)
        loop.allow(110)
        loop.keep_in_flight(1)
        assert done(loop)
        errors, _ = loop.swap_errors()
    assert sum(errors.values()) == 110
    assert len(errors) == 101
