"""The client's session of gRPC: what it sends is what was asked, and each end of a call has gRPC's code for it."""

from __future__ import annotations

import re
import struct

import pytest
from hyperframe.frame import GoAwayFrame, PingFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.grpc.session_helpers import OK, Server, framed
from tisfast import limits
from tisfast.errors import BadRequest, BadResponse
from tisfast.wire.buffer_tensor import BufferTensor
from tisfast.wire.compress import compress
from tisfast.wire.grpc.client_session import timeout_text

PATH = "/p.S/M"
FIELDS = [
    (":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "h:1"), ("te", "trailers"),
    ("content-type", "application/grpc"), ("user-agent", "tisfast"),
    ("grpc-accept-encoding", "identity, deflate, gzip"),
]  # fmt: skip
FIELDS_MAX = 64
CANCEL = 8


def begin(server, *messages, last=True, **options):
    """A call whose head the server has read, with these messages behind it."""
    call = server.session.start(PATH, **options)
    for message in messages:
        server.session.send(call, message)
    if last:
        server.session.finish_sending(call)
    server.read()
    return call


def kinds(events):
    return [kind for kind, *_ in events]


# ---- what is sent


@pytest.mark.parametrize(
    ("given", "further"),
    [
        ({}, []),
        ({"timeout_ns": 0}, []),
        ({"timeout_ns": 5}, [("grpc-timeout", "5n")]),
        ({"timeout_ns": 3 * 10**9}, [("grpc-timeout", "3000000u")]),
        ({"metadata": [("X-User", "a b"), ("x-user", "c")]}, [("x-user", "a b"), ("x-user", "c")]),
        ({"metadata": [("k-bin", b"\0\1")]}, [("k-bin", "AAE")]),
        ({"metadata": [("k-bin", b"")]}, [("k-bin", "")]),
        ({"metadata": [("k", "")], "timeout_ns": 1}, [("grpc-timeout", "1n"), ("k", "")]),
    ],
)
def test_a_call_begins_with_grpcs_fields_and_its_own(given, further):
    server = Server()
    call = begin(server, **given)
    assert server.fields == {call.id: FIELDS + further}
    assert (call.path, call.metadata, call.trailers, call.code, call.text) == (PATH, None, None, -1, "")


def test_scheme_and_name_of_the_client_are_the_callers():
    server = Server(scheme="https", user_agent="mine/1")
    call = begin(server)
    assert {(":scheme", "https"), ("user-agent", "mine/1")} <= set(server.fields[call.id])


def test_the_session_asks_for_no_pushed_streams():
    server = Server()
    server.read()
    assert server.settings[SettingsFrame.ENABLE_PUSH] == 0


FLOATS = struct.pack("<3f", 1, 2, 3)
LONG = bytes(range(256)) * 40


@pytest.mark.parametrize(
    ("message", "data"),
    [
        (b"", b""),
        (b"abc", b"abc"),
        (LONG, LONG),
        ([], b""),
        ([b"a", b"", b"bc"], b"abc"),
        ([b"<", BufferTensor("I", "FP32", [3], FLOATS), b">"], b"<" + FLOATS + b">"),
        ([BufferTensor("I", "UINT8", [len(LONG)], LONG)], LONG),
        ([BufferTensor("I", "FP32", [0], b"")], b""),
    ],
)
def test_a_message_goes_behind_its_length(message, data):
    server = Server()
    call = begin(server, last=False)
    server.session.send(call, message)
    assert call.waiting_bytes == 5 + len(data)
    server.read()
    assert (server.data[call.id], call.waiting_bytes, server.closed) == (framed(data), 0, set())
    server.session.send(call, b"z", last=True)
    assert server.read().data[call.id] == framed(data) + framed(b"z")
    assert server.closed == {call.id}


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=60), max_size=5),
    st.integers(1, 50),
    st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=12),
)
def test_no_more_leaves_than_the_server_has_room_for(messages, window, updates):
    server = Server()
    server.tell(SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: window}))
    call = begin(server, *messages)
    whole = b"".join(map(framed, messages))
    room = window
    for early, more in updates:
        assert server.data[call.id] == whole[:room]
        assert call.waiting_bytes == max(len(whole) - room, 0)
        if call.id in server.closed:
            return
        if early:  # nothing new to send
            server.read()
        server.tell(WindowUpdateFrame(call.id, more))
        server.read()
        room += more
    assert server.data[call.id] == whole[:room]


def test_calls_beyond_the_servers_number_wait():
    server = Server()
    server.tell(SettingsFrame(0, {SettingsFrame.MAX_CONCURRENT_STREAMS: 1}))
    assert server.session.calls_max == 1
    first, second = begin(server, b"a"), begin(server, b"b")
    assert set(server.fields) == {first.id}
    server.tell(server.head(first), server.trailers(first))
    assert server.read().data == {first.id: framed(b"a"), second.id: framed(b"b")}


@pytest.mark.parametrize("ended", ["half", "cancelled", "answered", "last"])
def test_a_call_that_is_over_takes_no_message(ended):
    server = Server()
    call = begin(server, last=ended == "half")
    if ended == "cancelled":
        server.session.cancel(call)
    elif ended == "answered":
        server.tell(server.head(call, OK, end=True))
    elif ended == "last":
        server.session.send(call, b"x", last=True)
    with pytest.raises(BadRequest, match=f"^the call of {PATH} takes no further message$"):
        server.session.send(call, b"y")


def test_a_message_that_grpc_cannot_count_is_refused():
    server = Server()
    call = begin(server, last=False)
    half = BufferTensor("I", "UINT8", [1 << 20], bytes(1 << 20))
    with pytest.raises(BadRequest) as caught:
        server.session.send(call, [half] * 2048)
    assert caught.value.message == f"a message of {1 << 31} bytes is more than gRPC can send ({(1 << 31) - 1})"
    server.session.send(call, b"x")  # the call goes on
    assert server.read().data[call.id] == framed(b"x")


def test_a_tensor_in_a_region_is_not_sent_as_bytes():
    server = Server()
    call = begin(server, last=False)
    with pytest.raises(BadRequest) as caught:
        server.session.send(call, [b"a", BufferTensor.in_region("I", "UINT8", [4], "mine", 4)])
    assert caught.value.message == "tensor 'I' is in the region 'mine'"
    assert call.waiting_bytes == 0


NO_NAME = "{!r} is no name of metadata"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("", "x", NO_NAME.format("")),
        ("a b", "x", NO_NAME.format("a b")),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", "x", NO_NAME.format("\N{LATIN SMALL LETTER E WITH ACUTE}")),
        (":path", "x", NO_NAME.format(":path")),
        ("grpc-status", "x", NO_NAME.format("grpc-status")),
        ("Content-Type", "x", NO_NAME.format("Content-Type")),
        ("host", "x", NO_NAME.format("host")),
        ("te", "x", NO_NAME.format("te")),
        ("user-agent", "x", NO_NAME.format("user-agent")),
        ("a\r\nb", "x", NO_NAME.format("a\r\nb")),
        ("k", b"x", "metadata 'k' has bytes, which a name that ends with -bin may have"),
        ("k", "\x7f", "metadata 'k' has a value that is not printable ASCII"),
        ("k", "a\r\nb: c", "metadata 'k' has a value that is not printable ASCII"),
        ("k", "\N{SNOWMAN}", "metadata 'k' has a value that is not printable ASCII"),
    ],
)
def test_what_is_no_metadata_is_refused_and_nothing_is_sent(name, value, text):
    server = Server().read()
    with pytest.raises(BadRequest) as caught:
        server.session.start(PATH, metadata=[(name, value)])
    assert caught.value.message == text
    assert server.session.outgoing() == b"" and server.session.lost() == []


def test_the_number_of_fields_is_bounded():
    server = Server()
    free = FIELDS_MAX - len(FIELDS)
    assert len(server.fields[begin(server, metadata=[("k", "v")] * free).id]) == FIELDS_MAX
    with pytest.raises(BadRequest, match="^a call has 65 fields with its metadata, 64 is the limit$"):
        server.session.start(PATH, metadata=[("k", "v")] * (free + 1))


SECONDS = {"n": 1, "u": 10**3, "m": 10**6, "S": 10**9, "M": 60 * 10**9, "H": 3600 * 10**9}


@given(st.integers(1, (1 << 63) - 1) | st.integers(1, 10**9) | st.sampled_from([10**8 - 1, 10**8, 10**14]))
def test_a_timeout_is_never_shortened_and_lengthened_by_less_than_its_unit(timeout_ns):
    digits, unit = re.fullmatch(r"([0-9]{1,8})([numSMH])", timeout_text(timeout_ns).decode()).groups()
    assert 0 <= int(digits) * SECONDS[unit] - timeout_ns < SECONDS[unit]


# ---- what comes


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=40), max_size=5), st.lists(st.integers(0, 500), max_size=12), st.data())
def test_an_answer_is_told_as_it_comes_however_it_is_split(messages, cuts, data):
    server = Server()
    call = begin(server)
    whole = b"".join(map(framed, messages))
    parts = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    frames = [server.piece(call, whole[a:b]) for a, b in zip(parts, parts[1:], strict=False)]
    frames = [server.head(call, [("a", "b")]), *frames, server.trailers(call, [*OK, ("c", "d")])]
    coded = b"".join(frame.serialize() for frame in frames)
    at = sorted({0, len(coded), *data.draw(st.lists(st.integers(0, len(coded)), max_size=8))})
    events = [event for a, b in zip(at, at[1:], strict=False) for event in server.session.take(coded[a:b])]
    assert kinds(events) == ["head", *["message"] * len(messages), "end"]
    assert [value for _, _, value in events] == [{"a": "b"}, *messages, {"grpc-status": "0", "c": "d"}]
    assert {found for _, found, _ in events} == {call}
    assert (call.metadata, call.trailers, call.code, call.text) == ({"a": "b"}, {"grpc-status": "0", "c": "d"}, 0, "")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_messages_may_be_compressed_one_by_one(coding):
    server = Server()
    call = begin(server)
    events = server.tell(
        server.head(call, [("grpc-encoding", coding)]),
        server.piece(call, framed(compress(coding, b"one"), 1) + framed(b"two") + framed(compress(coding, b""), 1)),
        server.trailers(call),
    )
    assert [value for kind, _, value in events if kind == "message"] == [b"one", b"two", b""]


def test_what_comes_before_the_answer_that_counts_is_passed_over():
    server = Server()
    call = begin(server)
    assert server.tell(server.head(call, [("x", "y")], status="103")) == []
    events = server.tell(server.head(call, [("a", "b")]), server.trailers(call))
    assert kinds(events) == ["head", "end"] and call.metadata == {"a": "b"}


def test_an_answer_that_is_all_in_its_head():
    server = Server()
    call = begin(server)
    fields = [("grpc-status", "5"), ("grpc-message", "no%20such%20%E2%98%83%0a100%25")]
    events = server.tell(server.head(call, fields, end=True))
    assert kinds(events) == ["head", "end"]
    assert (call.code, call.text) == (5, "no such \N{SNOWMAN}\n100%")


def test_answers_of_several_calls_may_be_mixed():
    server = Server()
    one, two = begin(server), begin(server)
    first, second = framed(b"one"), framed(b"two")
    events = server.tell(
        server.head(two), server.head(one), server.piece(one, first[:6]), server.piece(two, second),
        server.piece(one, first[6:]), server.trailers(two), server.trailers(one, [("grpc-status", "7")]),
    )  # fmt: skip
    messages = [(call, value) for kind, call, value in events if kind == "message"]
    assert messages == [(two, b"two"), (one, b"one")]
    assert (one.code, two.code) == (7, 0)


def told(server, call):
    """The codes and texts of ends, and whether the server was told that nothing more is wanted."""
    return call.code, call.text, server.read().resets.get(call.id)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, 13), (401, 16), (403, 7), (404, 12), (429, 14), (502, 14), (503, 14), (504, 14), (500, 2), (302, 2),
        (204, 2),
    ],
)  # fmt: skip
def test_answers_that_are_not_grpcs_have_the_code_of_their_http_status(status, code):
    server = Server()
    call = begin(server)
    server.tell(server.head(call, [("content-type", "text/html")], status=str(status)))
    server.tell(server.piece(call, b"" if status == 204 else b"<html>", end=True))
    assert told(server, call) == (code, f"the server answered with HTTP status {status}", None)


def test_grpcs_own_status_counts_whatever_the_http_status():
    server = Server()
    call = begin(server)
    server.tell(server.head(call, [("grpc-status", "5"), ("grpc-message", "gone")], status="404", end=True))
    assert told(server, call) == (5, "gone", None)


@pytest.mark.parametrize(("error", "code"), [(0, 13), (1, 13), (2, 13), (7, 14), (8, 1), (0xB, 8), (0xC, 7), (99, 13)])
@pytest.mark.parametrize("begun", [False, True])
def test_a_call_that_the_server_resets_has_the_code_of_the_reason(error, code, begun):
    server = Server()
    call = begin(server, last=False)
    if begun and error:  # without a reason: as one that has no status
        server.tell(server.head(call), server.piece(call, framed(b"abc")[:6]))
    server.tell(RstStreamFrame(call.id, error_code=error))
    assert told(server, call) == (code, f"the server reset the call (HTTP/2 error {error})", None)


@pytest.mark.parametrize("status", ["", "x", "-1", "1.0", "0x0", "1" * 10])
def test_a_status_that_is_none_is_unknown(status):
    server = Server()
    call = begin(server)
    server.tell(server.head(call), server.trailers(call, [("grpc-status", status), ("grpc-message", "odd")]))
    assert told(server, call) == (2, "odd", None)


TOO_LONG = "the server's message has 11 bytes, 10 is the limit"
EXPANDED = "the server's message cannot be expanded: "


@pytest.mark.parametrize(
    ("data", "encoding", "code", "text"),
    [
        (framed(bytes(11)), "identity", 8, TOO_LONG),
        (framed(bytes(11))[:5], "identity", 8, TOO_LONG),
        (framed(b"a", 2), "gzip", 13, "the server's message begins with 2, which is no flag of compression"),
        (framed(b"a", 1), "identity", 13, EXPANDED + "Unsupported compression type"),
        (framed(b"a", 1), "br", 13, EXPANDED + "Unsupported compression type"),
    ],
)
def test_a_message_that_cannot_be_read_ends_its_call_and_no_other(data, encoding, code, text):
    server = Server(message_max=10)
    call, other = begin(server), begin(server)
    events = server.tell(server.head(call, [("grpc-encoding", encoding)]), server.piece(call, data + framed(b"late")))
    assert kinds(events) == ["head", "end"] and told(server, call) == (code, text, CANCEL)
    events = server.tell(server.head(other), server.piece(other, framed(bytes(10))), server.trailers(other))
    assert kinds(events) == ["head", "message", "end"] and other.code == 0


GZIP = compress("gzip", b"abc")


@pytest.mark.parametrize(
    ("coded", "text"),
    [
        (b"abc", "request body is not in the gzip format its Content-Encoding says: "),
        (GZIP[:-4], f"request body in gzip format ends before its data does ({len(GZIP) - 4} bytes received)"),
        (compress("gzip", bytes(101)), "Decompressed data size exceeds the maximum allowed value of 100 bytes."),
    ],
)
def test_a_compressed_message_is_expanded_whole_and_within_its_bound(coded, text):
    server = Server(message_max=100)
    call = begin(server)
    server.tell(server.head(call, [("grpc-encoding", "gzip")]), server.piece(call, framed(coded, 1)))
    assert call.code == 13 and call.text.startswith(EXPANDED + text) and "--http" not in call.text


def test_a_call_is_over_when_the_server_has_said_all():
    """It may answer before it has heard everything, and need not reset the call."""
    server = Server()
    open_calls = {"speaking": begin(server, last=False), "blocked": begin(server, bytes(100_000))}
    assert open_calls["blocked"].waiting_bytes
    for call in open_calls.values():
        refusal = server.trailers(call, [("grpc-status", "3")])
        events = server.tell(server.head(call), server.piece(call, framed(b"no")), refusal)
        assert kinds(events) == ["head", "message", "end"] and told(server, call) == (3, "", CANCEL)
    server.tell(WindowUpdateFrame(0, 1 << 20))  # the blocked call had taken the connection's
    done = begin(server, b"x")
    assert kinds(server.tell(server.head(done), server.trailers(done))) == ["head", "end"]
    assert told(server, done) == (0, "", None) and server.session.lost() == []


@pytest.mark.parametrize(
    ("data", "trailers", "code", "text"),
    [
        (b"", None, 2, "the server ended the call without a status"),
        (framed(b"abc"), None, 2, "the server ended the call without a status"),
        (b"", [("a", "b")], 2, "the server ended the call without a status"),
        (framed(b"abc")[:3], OK, 13, "the server ended the call in the middle of a message"),
        (framed(b"abc")[:-1], OK, 13, "the server ended the call in the middle of a message"),
        (framed(b"abc")[:-1], [("grpc-status", "14"), ("grpc-message", "gone")], 14, "gone"),
        (framed(b"abc"), [("grpc-status", "14")], 14, ""),
    ],
)
def test_an_answer_that_ends_early_is_told(data, trailers, code, text):
    server = Server()
    call = begin(server)
    server.tell(server.head(call), server.piece(call, data, end=trailers is None))
    if trailers is not None:
        server.tell(server.trailers(call, trailers))
    assert told(server, call) == (code, text, None)


def test_a_cancelled_call_ends_once_and_the_server_is_told():
    server = Server()
    call = begin(server, last=False)
    server.session.cancel(call)
    server.session.cancel(call)
    assert told(server, call) == (1, "cancelled by the client", CANCEL)
    assert kinds(server.tell(server.head(call), server.piece(call, framed(b"late")), server.trailers(call))) == ["end"]


def test_a_lost_connection_ends_every_call():
    server = Server()
    done, open_calls = begin(server), [begin(server) for _ in range(3)]
    server.tell(server.head(done), server.trailers(done))
    events = server.session.lost()
    assert events == [("end", call, {}) for call in open_calls]
    assert {(call.code, call.text) for call in open_calls} == {(14, "the connection to the server was lost")}
    assert done.code == 0 and server.session.lost() == []


def test_a_server_that_leaves_answers_what_it_has_begun():
    server = Server()
    call, late = begin(server), begin(server)
    assert not server.session.leaving
    ends = server.tell(GoAwayFrame(0, last_stream_id=call.id))
    assert server.session.leaving and [found for _, found, _ in ends] == [late] and late.code == 14
    server.tell(server.head(call), server.trailers(call))
    server.read()
    assert call.code == 0 and server.session.ended


def test_a_ping_is_answered():
    server = Server().read()
    server.tell(PingFrame(0, opaque_data=b"12345678"))
    assert server.session.outgoing() == PingFrame(0, opaque_data=b"12345678", flags=["ACK"]).serialize()


def test_a_server_that_floods_is_no_server():
    server = Server()
    flood = PingFrame(0, opaque_data=bytes(8)).serialize() * (limits.HTTP2_UNSENT_ACKS_MAX + 2)
    with pytest.raises(BadResponse, match="^the server does not speak HTTP/2: it sent b'"):
        server.session.take(flood)
