"""HTTP/2 sessions of both sides, without sockets: against each other, and against frames that no library writes."""

from __future__ import annotations

import struct
from typing import Any

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tisfast.native.testing_http2 import RecordingClient, RecordingServer, Stream

from tests.native.frames import (
    ACK,
    CALM,
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    GOAWAY,
    HEADERS,
    INTERNAL_ERROR,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    entries,
    frame,
    frames_in,
    of_kind,
    reset,
    window,
)
from tisfast import limits
from tisfast.errors import Internal
from tisfast.native import testing as native
from tisfast.native import testing_http2 as http2

REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/x"), (b":authority", b"h")]
RESPONSE = [(b":status", b"200"), (b"kind", b"plain")]
TRAILERS = [(b"grpc-status", b"0")]
BATCH = 1 << 16


class Pair:
    """A client and a server, and all that they were told."""

    def __init__(self, server: Any = None, client: Any = None) -> None:
        self.server = server or RecordingServer()
        self.client = client or RecordingClient()

    def pass_on(self) -> bool:
        """One way, and the other; whether there was something."""
        up = http2.outgoing(self.client)
        assert http2.receive(self.server, up) == 0
        down = http2.outgoing(self.server)
        assert http2.receive(self.client, down) == 0
        return bool(up or down)

    def settle(self) -> None:
        for _ in range(1000):
            if not self.pass_on():
                return
        raise AssertionError("the sides never come to rest")

    def of_server(self, *names: str) -> list[tuple[Any, ...]]:
        return [event for event in self.server.told.events if event[0] in names]

    def of_client(self, *names: str) -> list[tuple[Any, ...]]:
        return [event for event in self.client.told.events if event[0] in names]


@pytest.fixture
def pair():
    made = Pair()
    made.settle()
    return made


def body(events):
    return b"".join(event[2] for event in events if event[0] == "data")


def server_with(*frames):
    """A server that has read these behind the preface; and what it has sent."""
    server = RecordingServer()
    assert http2.receive(server, PREFACE + frame(SETTINGS) + b"".join(frames)) == 0
    return server, http2.outgoing(server)


def head(fields=REQUEST, stream=1, flags=END_HEADERS | END_STREAM, encoder=None):
    return frame(HEADERS, flags, stream, (encoder or hpack.Encoder()).encode(fields))


def events(session, *names):
    return [event for event in session.told.events if event[0] in names]


# ---- a call, there and back


def test_a_call_is_told_in_order_on_both_sides(pair):
    pair.server.answer = b"answer"
    stream = pair.client.asks([*REQUEST, (b"te", b"trailers")], Stream(b"question"), True)
    pair.settle()
    told = pair.of_server("begins", "field", "request", "data", "end")
    assert told == [
        ("begins",), *(("field", *field) for field in [*REQUEST, (b"te", b"trailers")]), ("request", stream),
        ("data", stream, b"question", stream, 0), ("end", stream),
    ]  # fmt: skip
    pair.server.answers(stream, RESPONSE, True)
    pair.settle()
    pair.server.trailers(stream, TRAILERS)
    pair.settle()
    assert pair.of_client("begins", "field", "response", "data", "end", "closed") == [
        ("begins", stream), *(("field", *field) for field in RESPONSE), ("response", stream),
        ("data", stream, b"answer"),
        ("begins", stream), ("field", *TRAILERS[0]), ("response", stream), ("end", stream),
        ("closed", stream, NO_ERROR),
    ]  # fmt: skip
    assert pair.of_server("closed") == [("closed", stream, NO_ERROR)]
    assert http2.open_streams(pair.server) == http2.open_streams(pair.client) == []


@given(st.binary(max_size=3 * BATCH), st.binary(max_size=3 * BATCH), st.integers(1, 70_000))
@settings(max_examples=25)
def test_bodies_arrive_as_they_were_sent_however_the_bytes_are_cut(question, answer, step):
    pair = Pair()
    pair.server.answer = answer
    stream = pair.client.asks(REQUEST, Stream(question), True)
    for _ in range(100):
        up = http2.outgoing(pair.client)
        for at in range(0, len(up), step):
            assert http2.receive(pair.server, up[at : at + step]) == 0
        down = http2.outgoing(pair.server)
        assert http2.receive(pair.client, down) == 0
        if not up and not down:
            break
    assert body(pair.server.told.events) == question
    assert pair.of_server("end") == [("end", stream)]
    pair.server.answers(stream, RESPONSE, True)
    pair.settle()
    assert body(pair.client.told.events) == answer


def test_streams_do_not_mix(pair):
    sent = {pair.client.asks(REQUEST, Stream(bytes([i]) * 50_000), True): bytes([i]) * 50_000 for i in range(20)}
    pair.settle()
    for stream, expected in sent.items():
        assert body([event for event in pair.of_server("data") if event[1] == stream]) == expected
    assert http2.open_streams(pair.server) == http2.open_streams(pair.client) == sorted(sent)


def test_a_request_without_a_body_ends_with_its_head(pair):
    stream = pair.client.asks(REQUEST, Stream(), False)
    sent = http2.outgoing(pair.client)
    (seen,) = of_kind(sent, HEADERS)
    assert seen.flags & END_STREAM
    assert http2.receive(pair.server, sent) == 0
    assert pair.of_server("request", "data", "end") == [("request", stream), ("end", stream)]


def test_a_response_without_a_body_ends_the_stream(pair):
    stream = pair.client.asks(REQUEST, Stream(), False)
    pair.settle()
    pair.server.answers(stream, RESPONSE, False)
    pair.settle()
    assert pair.of_client("end", "closed") == [("end", stream), ("closed", stream, NO_ERROR)]


def test_a_body_waits_until_there_is_more_of_it(pair):
    question = Stream(b"", last=False)
    stream = pair.client.asks(REQUEST, question, True)
    pair.settle()
    assert pair.of_server("data", "end") == []
    for piece, last in ((b"one", False), (b"two", True)):
        question.more(piece, last)
        http2.resume(pair.client, stream)
        pair.settle()
    assert body(pair.of_server("data")) == b"onetwo"
    assert pair.of_server("end") == [("end", stream)]


def test_a_stream_that_does_not_wait_may_be_resumed(pair):
    stream = pair.client.asks(REQUEST, Stream(b"x"), True)
    http2.resume(pair.client, stream)
    http2.resume(pair.client, 99)
    pair.settle()
    assert body(pair.of_server("data")) == b"x"


def test_an_answer_before_the_end_of_the_request_tells_the_client_to_stop(pair):
    stream = pair.client.asks(REQUEST, Stream(b"part", last=False), True)
    pair.settle()
    pair.server.answers(stream, RESPONSE, False)
    sent = http2.outgoing(pair.server)
    assert [(seen.stream, code_of(seen)) for seen in of_kind(sent, RST_STREAM)] == [(stream, NO_ERROR)]
    assert http2.receive(pair.client, sent) == 0
    assert pair.of_client("closed") == [("closed", stream, NO_ERROR)]


def test_what_was_sent_is_told_with_its_kind(pair):
    stream = pair.client.asks(REQUEST, Stream(b"x"), True)
    pair.settle()
    pair.server.told.events.clear()
    pair.server.answers(stream, RESPONSE, False)
    pair.settle()
    assert pair.of_server("sent") == [("sent", True, False)]
    second = pair.client.asks(REQUEST, Stream(b"x", last=False), True)
    pair.settle()
    http2.reset(pair.server, second, INTERNAL_ERROR)
    pair.settle()
    assert pair.of_server("sent")[-1] == ("sent", False, True)
    assert pair.of_client("closed")[-1] == ("closed", second, INTERNAL_ERROR)


def test_both_sides_can_end_a_stream(pair):
    first, second = (pair.client.asks(REQUEST, Stream(b"", last=False), True) for _ in range(2))
    pair.settle()
    http2.reset(pair.client, first, CANCEL)
    http2.reset(pair.server, second, REFUSED_STREAM)
    pair.settle()
    assert pair.of_server("closed") == [("closed", first, CANCEL), ("closed", second, REFUSED_STREAM)]
    assert sorted(pair.of_client("closed")) == [("closed", first, CANCEL), ("closed", second, REFUSED_STREAM)]


def test_what_still_comes_for_streams_that_are_gone_takes_no_room_from_others(pair):
    each = limits.HTTP2_STREAM_WINDOW_BYTES
    for _ in range(limits.HTTP2_CONNECTION_WINDOW_BYTES // each + 1):
        question = Stream(b"", last=False)
        stream = pair.client.asks(REQUEST, question, True)
        pair.settle()
        http2.reset(pair.server, stream, CANCEL)
        on_its_way = http2.outgoing(pair.server)
        question.more(bytes(each), True)
        http2.resume(pair.client, stream)
        assert http2.receive(pair.server, http2.outgoing(pair.client)) == 0
        assert http2.receive(pair.client, on_its_way) == 0
        pair.settle()
    assert pair.of_server("data") == []
    pair.client.asks(REQUEST, Stream(b"x" * 1000), True)
    pair.settle()
    assert body(pair.of_server("data")) == b"x" * 1000


# ---- how much may come and go


def test_no_more_comes_than_was_consumed():
    pair = Pair()
    pair.settle()
    question = bytes(limits.HTTP2_STREAM_WINDOW_BYTES + 1000)
    stream = pair.client.asks(REQUEST, Stream(question), True)
    pair.settle()
    assert len(body(pair.of_server("data"))) == limits.HTTP2_STREAM_WINDOW_BYTES
    http2.consumed(pair.server, stream, 0, 0)
    pair.settle()
    assert len(body(pair.of_server("data"))) == limits.HTTP2_STREAM_WINDOW_BYTES
    http2.consumed(pair.server, stream, limits.HTTP2_STREAM_WINDOW_BYTES, limits.HTTP2_STREAM_WINDOW_BYTES)
    pair.settle()
    assert body(pair.of_server("data")) == question


def test_all_streams_together_have_a_window_too():
    pair = Pair()
    pair.settle()
    each, most = limits.HTTP2_STREAM_WINDOW_BYTES, limits.HTTP2_CONNECTION_WINDOW_BYTES
    streams = [pair.client.asks(REQUEST, Stream(bytes(each)), True) for _ in range(most // each + 1)]
    pair.settle()
    assert len(body(pair.of_server("data"))) == most
    http2.consumed(pair.server, streams[0], most // 2, 0)  # less is told later
    pair.settle()
    assert len(body(pair.of_server("data"))) == len(streams) * each


def test_more_streams_than_the_server_takes_wait_for_their_turn():
    pair = Pair()
    pair.settle()
    most = pair.client.most_streams()
    assert most == limits.GRPC_STREAMS_MAX
    for _ in range(most + 1):
        pair.client.asks(REQUEST, Stream(b"", last=False), True)
    pair.settle()
    assert len(pair.of_server("request")) == most
    http2.reset(pair.client, 1, CANCEL)
    pair.settle()
    assert len(pair.of_server("request")) == most + 1


def test_a_gathered_write_is_bounded_and_borrows_large_bodies():
    server = RecordingServer()
    server.answer = bytes(2 << 20)
    fields = hpack.Encoder()
    heads = b"".join(head(stream=2 * i + 1, encoder=fields) for i in range(4))
    assert http2.receive(server, PREFACE + entries(initial_window=8 << 20) + window(0, 64 << 20) + heads) == 0
    for i in range(4):
        server.answers(2 * i + 1, RESPONSE, True)
    writes = []
    while pieces := http2.gathered(server):
        writes.append(sum(map(len, pieces)))
    assert len(writes) > 1
    assert sum(writes) > 8 << 20
    assert max(writes) < (4 << 20) + (1 << 20)


def test_a_frame_is_as_long_as_windows_and_the_other_side_allow():
    server = RecordingServer()
    server.answer = bytes(40_000)
    assert http2.receive(server, PREFACE + entries(initial_window=20_000) + head()) == 0
    server.answers(1, RESPONSE, True)
    assert [len(seen.payload) for seen in of_kind(http2.outgoing(server), DATA)] == [16_384, 3_616]
    assert http2.receive(server, window(1, 100)) == 0
    assert [len(seen.payload) for seen in of_kind(http2.outgoing(server), DATA)] == [100]


def test_memory_of_a_write_that_somebody_else_holds_is_not_written_again(pair):
    stream = pair.client.asks(REQUEST, Stream(b"", last=False), True)
    http2.outgoing(pair.client)
    http2.ping(pair.client)
    kept = http2.renew_out(pair.client)
    http2.reset(pair.client, stream, CANCEL)
    sent = http2.outgoing(pair.client)
    assert [seen.kind for seen in frames_in(sent)] == [PING, RST_STREAM]
    assert native.pieces(kept) == []


# ---- what a server says first


def test_a_server_states_its_limits():
    _, sent = server_with()
    values = dict(struct.iter_unpack(">HL", of_kind(sent, SETTINGS)[0].payload))
    assert values == {
        3: limits.GRPC_STREAMS_MAX, 4: limits.HTTP2_STREAM_WINDOW_BYTES, 5: limits.HTTP2_FRAME_BYTES_MAX,
        6: limits.GRPC_METADATA_BYTES_MAX, 9: 1,
    }  # fmt: skip
    (more,) = of_kind(sent, WINDOW_UPDATE)
    assert struct.unpack(">L", more.payload)[0] == limits.HTTP2_CONNECTION_WINDOW_BYTES - 65_535


def test_a_client_takes_no_pushes_and_names_no_streams():
    sent = http2.outgoing(RecordingClient())
    assert sent.startswith(PREFACE)
    values = dict(struct.iter_unpack(">HL", of_kind(sent, SETTINGS)[0].payload))
    assert values[2] == 0
    assert 3 not in values


# ---- pings and farewells


def test_pings_are_answered_and_told(pair):
    http2.ping(pair.client)
    pair.settle()
    assert pair.of_server("ping") == [("ping", False)]
    assert pair.of_client("ping") == [("ping", True)]


def test_an_announced_end_lets_streams_come_and_the_end_none(pair):
    http2.announce_shutdown(pair.server)
    pair.settle()
    assert pair.of_client("goaway") == [("goaway", 2**31 - 1, NO_ERROR)]
    first = RecordingServer()
    assert http2.receive(first, PREFACE + frame(SETTINGS) + head()) == 0
    http2.go_away(first, CALM, b"enough")
    (seen,) = of_kind(http2.outgoing(first), GOAWAY)
    assert seen.payload == struct.pack(">LL", 1, CALM) + b"enough"


def test_a_client_is_told_which_streams_a_server_leaves_out(pair):
    first, second = (pair.client.asks(REQUEST, Stream(b"", last=False), True) for _ in range(2))
    http2.outgoing(pair.client)
    assert http2.receive(pair.client, frame(GOAWAY, 0, 0, struct.pack(">LL", first, NO_ERROR))) == 0
    told = sorted(pair.of_client("goaway", "closed"))
    assert told == [("closed", second, REFUSED_STREAM), ("goaway", first, NO_ERROR)]
    assert http2.open_streams(pair.client) == [first]


def test_a_session_is_over_when_neither_side_says_more(pair):
    stream = pair.client.asks(REQUEST, Stream(), False)
    pair.settle()
    assert not http2.over(pair.server)
    http2.go_away(pair.server, NO_ERROR, b"")
    pair.settle()
    assert not http2.over(pair.server), "a stream is open"
    pair.server.answers(stream, RESPONSE, False)
    pair.settle()
    assert http2.over(pair.server)


# ---- what is wrong


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(64)])
def test_bytes_that_are_not_http2_close_the_connection(data):
    assert http2.receive(RecordingServer(), data) < 0


def test_a_client_closes_where_the_server_speaks_something_else():
    client = RecordingClient()
    http2.outgoing(client)
    http2.receive(client, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert of_kind(http2.outgoing(client), GOAWAY)
    assert http2.over(client)


def code_of(seen):
    return struct.unpack(">L", seen.payload)[0]


@pytest.mark.parametrize(
    "fields",
    [
        [field for field in REQUEST if field[0] != b":path"],
        [*REQUEST, (b":path", b"/y")],
        [*REQUEST, (b"connection", b"close")],
        [*REQUEST, (b"te", b"gzip")],
        [(b"a", b"b"), *REQUEST],
        [*REQUEST, (b":status", b"200")],
    ],
    ids=["no path", "two paths", "connection", "te", "late pseudo fields", "a status"],
)
def test_a_head_that_http2_forbids_resets_its_call_alone(fields):
    encoder = hpack.Encoder()
    server, sent = server_with(head(fields, encoder=encoder), head(stream=3, encoder=encoder))
    assert [(seen.stream, code_of(seen)) for seen in of_kind(sent, RST_STREAM)] == [(1, PROTOCOL_ERROR)]
    assert events(server, "invalid", "request", "closed") == [("invalid",), ("request", 3)]


@pytest.mark.parametrize("field", [(b"Upper", b"x"), (b"a b", b"x"), (b"name", b"a\nb"), (b"name", b"a\0")])
def test_a_field_that_is_none_resets_its_call(field):
    server, sent = server_with(head([*REQUEST, field]))
    assert [seen.stream for seen in of_kind(sent, RST_STREAM)] == [1]
    assert events(server, "request") == []


def test_spaces_around_a_value_are_taken():
    server, _ = server_with(head([*REQUEST, (b"name", b" padded ")]))
    assert ("request", 1) in server.told.events
    assert [event[2].strip() for event in events(server, "field") if event[1] == b"name"] == [b"padded"]


def large_head(stream, encoder, nbytes=limits.HTTP2_FIELDS_BYTES_MAX):
    """A small block of fields that are large when they are expanded: one long value, named again and again."""
    value = b"v" * 4000
    return head([*REQUEST, *[(b"long", value)] * (nbytes // 4000 + 1)], stream, encoder=encoder)


def test_a_head_that_expands_too_far_resets_its_call():
    encoder = hpack.Encoder()
    server, sent = server_with(large_head(1, encoder), head(stream=3, encoder=encoder))
    assert [seen.stream for seen in of_kind(sent, RST_STREAM)] == [1]
    assert ("invalid",) in server.told.events
    assert events(server, "request") == [("request", 3)]
    assert sum(len(event[2]) for event in events(server, "field")) <= 2 * limits.HTTP2_FIELDS_BYTES_MAX


def test_heads_that_expand_too_far_again_and_again_end_the_connection():
    encoder, server = hpack.Encoder(), RecordingServer()
    http2.receive(server, PREFACE + frame(SETTINGS))
    for i in range(limits.HTTP2_LARGE_HEADS_MAX):
        assert http2.receive(server, large_head(2 * i + 1, encoder)) == 0
    for i in range(limits.HTTP2_LARGE_HEADS_MAX, limits.HTTP2_LARGE_HEADS_MAX + 2):
        http2.receive(server, large_head(2 * i + 1, encoder))
    assert ("flood", b"too_many_large_heads") in server.told.events


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (window(0, 1) * limits.HTTP2_IDLE_FRAMES_MAX, b"too_many_idle_frames"),
        (head() + reset(1) * (limits.HTTP2_RESETS_BURST + 1), b"too_many_resets"),
        (frame(HEADERS, 0, 1, bytes(limits.HTTP2_HEAD_BLOCK_BYTES_MAX + 1)), b"too_large_head"),
    ],
)
def test_a_flood_is_told_once_and_nothing_is_read_behind_it(data, reason):
    server = RecordingServer()
    http2.receive(server, PREFACE + frame(SETTINGS))
    http2.receive(server, data + head(stream=9))
    assert events(server, "flood") == [("flood", reason)]
    assert ("request", 9) not in server.told.events


def test_a_client_is_not_held_to_what_requests_are_held_to():
    client = RecordingClient()
    http2.outgoing(client)
    pings = frame(PING, 0, 0, bytes(8)) * 900
    assert http2.receive(client, frame(SETTINGS) + pings) == 0
    assert len(events(client, "ping")) == 900


def test_continuations_without_end_are_the_library_s_to_bound():
    server = RecordingServer()
    block = hpack.Encoder().encode(REQUEST)
    pieces = [frame(CONTINUATION, 0, 1, b"") for _ in range(limits.HTTP2_CONTINUATIONS_MAX + 1)]
    code = http2.receive(server, PREFACE + frame(SETTINGS) + frame(HEADERS, 0, 1, block) + b"".join(pieces))
    assert code < 0 or of_kind(http2.outgoing(server), GOAWAY)


def test_more_than_its_window_ends_the_connection():
    server = RecordingServer()
    http2.receive(server, PREFACE + frame(SETTINGS) + head(flags=END_HEADERS))
    http2.outgoing(server)
    http2.receive(server, frame(SETTINGS, ACK))
    piece = frame(DATA, 0, 1, bytes(1 << 20))
    for _ in range(limits.HTTP2_STREAM_WINDOW_BYTES // (1 << 20) + 1):
        http2.receive(server, piece)
    sent = http2.outgoing(server)
    assert [struct.unpack_from(">L", seen.payload, 4)[0] for seen in of_kind(sent, GOAWAY)] == [FLOW_CONTROL_ERROR]


def test_padding_is_not_part_of_the_body_and_its_length_is_not_foretold():
    padded = frame(DATA, PADDED | END_STREAM, 1, bytes([3]) + b"body" + bytes(3))
    server, _ = server_with(head(flags=END_HEADERS), padded)
    assert events(server, "data") == [("data", 1, b"body", 0, 0)]


def test_how_much_of_a_frame_is_to_come_is_known_from_its_head():
    server, _ = server_with(head(flags=END_HEADERS))
    data = frame(DATA, END_STREAM, 1, bytes(100))
    for piece in (data[:19], data[19:59], data[59:]):
        http2.receive(server, piece)
    assert [(len(event[2]), event[4]) for event in events(server, "data")] == [(10, 90), (40, 50), (50, 0)]


def test_trailers_of_a_request_end_it_and_say_nothing():
    encoder = hpack.Encoder()
    server, _ = server_with(
        head(flags=END_HEADERS, encoder=encoder), frame(DATA, 0, 1, b"x"), head([(b"late", b"x")], encoder=encoder)
    )
    assert events(server, "request", "data", "end") == [("request", 1), ("data", 1, b"x", 1, 0), ("end", 1)]
    assert ("field", b"late", b"x") not in server.told.events


def test_an_interim_response_comes_before_the_final_one(pair):
    stream = pair.client.asks(REQUEST, Stream(), False)
    http2.outgoing(pair.client)
    encoder = hpack.Encoder()
    interim = head([(b":status", b"103")], stream, END_HEADERS, encoder)
    final = head([(b":status", b"200")], stream, END_HEADERS | END_STREAM, encoder)
    assert http2.receive(pair.client, interim + final) == 0
    assert pair.of_client("field", "response", "end") == [
        ("field", b":status", b"103"), ("response", stream), ("field", b":status", b"200"), ("response", stream),
        ("end", stream),
    ]  # fmt: skip


# ---- overrides that fail


class Broken(Exception):
    pass


@pytest.mark.parametrize("event", ["begins", "field", "request", "data", "end"])
def test_an_exception_in_what_a_server_is_told_comes_out_of_receive(event):
    server = RecordingServer()
    server.told.raising[event] = Broken(event)
    with pytest.raises(Broken, match=f"^{event}$"):
        http2.receive(server, PREFACE + frame(SETTINGS) + head(flags=END_HEADERS) + frame(DATA, END_STREAM, 1, b"x"))


@pytest.mark.parametrize(("event", "data"), [
    ("closed", head(flags=END_HEADERS) + reset(1)),
    ("ping", frame(PING, 0, 0, bytes(8))),
    ("goaway", frame(GOAWAY, 0, 0, bytes(8))),
    ("flood", frame(HEADERS, 0, 1, bytes(limits.HTTP2_HEAD_BLOCK_BYTES_MAX + 1))),
])  # fmt: skip
def test_so_does_one_in_what_happens_to_the_connection(event, data):
    server = RecordingServer()
    server.told.raising[event] = Broken(event)
    with pytest.raises(Broken, match=f"^{event}$"):
        http2.receive(server, PREFACE + frame(SETTINGS) + data)


@pytest.mark.parametrize("event", ["room", "take", "sent"])
def test_an_exception_while_frames_are_made_comes_out_of_collect(event):
    server = RecordingServer()
    server.answer = b"x"
    http2.receive(server, PREFACE + frame(SETTINGS) + head())
    http2.outgoing(server)
    server.told.raising[event] = Broken(event)
    server.answers(1, RESPONSE, True)
    with pytest.raises(Broken, match=f"^{event}$"):
        http2.outgoing(server)


@pytest.mark.parametrize("event", ["begins", "field", "response", "data", "end"])
def test_an_exception_in_what_a_client_is_told_comes_out_of_receive(event, pair):
    pair.client.asks(REQUEST, Stream(), False)
    pair.settle()
    pair.client.told.raising[event] = Broken(event)
    answer = head(RESPONSE, 1, END_HEADERS) + frame(DATA, END_STREAM, 1, b"x")
    with pytest.raises(Broken, match=f"^{event}$"):
        http2.receive(pair.client, answer)


def test_a_server_that_makes_no_streams_says_which_method_it_lacks():
    with pytest.raises(NotImplementedError, match=r"^BareServer\.on_request$"):
        http2.receive(http2.BareServer(), PREFACE + frame(SETTINGS) + head())


def test_what_is_not_overridden_is_passed_over():
    pair = Pair(http2.SilentServer(), http2.SilentClient())
    stream = pair.client.asks(REQUEST, Stream(b"question"), True)
    http2.ping(pair.client)
    pair.settle()
    pair.server.answers(stream, RESPONSE, True)
    http2.ping(pair.server)
    pair.settle()
    http2.reset(pair.client, stream, CANCEL)
    http2.go_away(pair.client, NO_ERROR, b"")
    pair.settle()
    assert http2.open_streams(pair.server) == http2.open_streams(pair.client) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda server: http2.reset(server, 0, CANCEL),
        lambda server: http2.go_away(server, NO_ERROR, bytes(20_000)),
        lambda server: server.answers(0, RESPONSE, True),
        lambda server: server.trailers(-1, TRAILERS),
    ],
    ids=["a reset of no stream", "a reason longer than a frame", "an answer to no stream", "trailers of no stream"],
)
def test_calls_that_the_library_refuses_name_its_reason(call):
    server, _ = server_with(head())
    with pytest.raises(Internal, match="^HTTP/2 library: Invalid argument$"):
        call(server)


def test_acknowledgements_that_nobody_reads_are_bounded():
    server, pings = RecordingServer(), frame(PING, 0, 0, bytes(8))
    code = http2.receive(server, PREFACE + frame(SETTINGS) + pings * (limits.HTTP2_UNSENT_ACKS_MAX + 2))
    assert code < 0
    assert events(server, "flood") == []
