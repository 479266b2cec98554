"""What a peer may do wrong in HTTP/2 (the cases of the public conformance lists), and what an attacker does.

Each is answered with the error that RFC 9113 names, and the server goes on serving others.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
)

from tests.front.grpc.frame_helpers import CALM, PSEUDO, head, others_are_served, raw
from tests.front.grpc.helpers import CHAT, ECHO, PREFACE, message
from tisfast import limits

NO_ERROR, PROTOCOL, INTERNAL, FLOW, SETTINGS_TIMEOUT, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION = range(10)


BREAKS_CONNECTION = {
    "DATA on stream 0": (lambda c: raw(0, 0, 0, b"x"), PROTOCOL),
    "DATA on an idle stream": (lambda c: raw(0, 0, 1, b"x"), PROTOCOL),
    "DATA padded beyond its length": (
        lambda c: head(c, 1, ["END_HEADERS"]).serialize() + raw(0, 8, 1, b"\x09x"),
        PROTOCOL,
    ),
    "DATA on a call that was answered and is over": (lambda c: head(c).serialize() + raw(0, 0, 1, b"x"), CLOSED),
    "HEADERS on stream 0": (lambda c: raw(1, 5, 0, head(c).data), PROTOCOL),
    "HEADERS on an even stream": (lambda c: raw(1, 5, 2, head(c).data), PROTOCOL),
    "HEADERS within a header block": (lambda c: raw(1, 1, 1, head(c).data) + raw(1, 5, 3, head(c).data), PROTOCOL),
    "DATA within a header block": (lambda c: raw(1, 1, 1, b"") + raw(0, 1, 1, b"x"), PROTOCOL),
    "unknown frame within a header block": (lambda c: raw(1, 1, 1, b"") + raw(0x16, 0, 0, b"x"), PROTOCOL),
    "HEADERS behind the end of a call": (lambda c: head(c).serialize() + head(c).serialize(), CLOSED),
    "HEADERS beyond SETTINGS_MAX_FRAME_SIZE": (lambda c: raw(1, 5, 1, b"", limits.HTTP2_FRAME_BYTES_MAX + 1), SIZE),
    "HEADERS on a stream of ours, PRIORITY within": (lambda c: raw(1, 1, 1, b"") + raw(2, 0, 1, bytes(5)), PROTOCOL),
    "padding beyond HEADERS": (lambda c: raw(1, 0xD, 1, b"\xff" + head(c).data), PROTOCOL),
    "invalid HPACK": (lambda c: raw(1, 5, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff"), COMPRESSION),
    "HPACK index out of range": (lambda c: raw(1, 5, 1, b"\xc6"), COMPRESSION),
    "HPACK table beyond the settings": (lambda c: raw(1, 5, 1, b"\x3f\xe1\xff\x03" + head(c).data), COMPRESSION),
    "HPACK index 0": (lambda c: raw(1, 5, 1, b"\x80"), COMPRESSION),
    "HPACK name index out of range": (lambda c: raw(1, 5, 1, b"\x7e\x01x"), COMPRESSION),
    "HPACK table size behind a field": (lambda c: raw(1, 5, 1, head(c).data + b"\x20"), COMPRESSION),
    "Huffman padding of more than 7 bits": (lambda c: raw(1, 5, 1, b"\0\x82\x1f\xff\x01x"), COMPRESSION),
    "Huffman padding of zeros": (lambda c: raw(1, 5, 1, b"\0\x81\x18\x01x"), COMPRESSION),
    "Huffman end of string": (lambda c: raw(1, 5, 1, b"\0\x84\xff\xff\xff\xff\x01x"), COMPRESSION),
    "DATA behind the end of a call": (lambda c: head(c).serialize() + raw(0, 1, 1, b"x"), CLOSED),
    "CONTINUATION of nothing": (lambda c: raw(9, 4, 1, b""), PROTOCOL),
    "CONTINUATION of another stream": (lambda c: raw(1, 1, 1, b"") + raw(9, 4, 3, b""), PROTOCOL),
    "CONTINUATION on stream 0": (lambda c: raw(1, 1, 1, b"") + raw(9, 4, 0, b""), PROTOCOL),
    "CONTINUATION behind the end of a head": (
        lambda c: raw(1, 4, 1, head(c).data) + raw(9, 4, 1, b""),
        PROTOCOL,
    ),
    "CONTINUATION behind DATA": (
        lambda c: raw(1, 4, 1, head(c).data) + raw(0, 0, 1, b"x") + raw(9, 4, 1, b""),
        PROTOCOL,
    ),
    "CONTINUATION behind the end of a call": (lambda c: head(c).serialize() + raw(9, 4, 1, b""), PROTOCOL),
    "PRIORITY of 4 bytes": (lambda c: raw(2, 0, 1, bytes(4)), SIZE),
    "RST_STREAM on stream 0": (lambda c: raw(3, 0, 0, b"\0\0\0\x08"), PROTOCOL),
    "RST_STREAM of 3 bytes": (lambda c: head(c).serialize() + raw(3, 0, 1, b"\0\0\0"), SIZE),
    "SETTINGS of 5 bytes": (lambda c: raw(4, 0, 0, b"\0\0\0\0\0"), SIZE),
    "SETTINGS on a stream": (lambda c: raw(4, 0, 1, b""), PROTOCOL),
    "SETTINGS acknowledgement with a body": (lambda c: raw(4, 1, 0, b"\0\0\0\0\0\0"), SIZE),
    "SETTINGS_ENABLE_PUSH of 2": (lambda c: SettingsFrame(0, settings={2: 2}).serialize(), PROTOCOL),
    "SETTINGS_INITIAL_WINDOW_SIZE of 2^31": (lambda c: SettingsFrame(0, settings={4: 1 << 31}).serialize(), FLOW),
    "SETTINGS_MAX_FRAME_SIZE of 16383": (lambda c: SettingsFrame(0, settings={5: 16383}).serialize(), PROTOCOL),
    "SETTINGS_MAX_FRAME_SIZE of 2^24": (lambda c: SettingsFrame(0, settings={5: 1 << 24}).serialize(), PROTOCOL),
    "PUSH_PROMISE by a client": (lambda c: PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"]).serialize(), PROTOCOL),
    "PING of 6 bytes": (lambda c: raw(6, 0, 0, b"123456"), SIZE),
    "PING on a stream": (lambda c: raw(6, 0, 1, b"12345678"), PROTOCOL),
    "GOAWAY of 7 bytes": (lambda c: raw(7, 0, 0, bytes(7)), SIZE),
    "GOAWAY on a stream": (lambda c: raw(7, 0, 1, b"\0" * 8), PROTOCOL),
    "WINDOW_UPDATE of 0 for a call": (lambda c: raw(1, 4, 1, head(c).data) + raw(8, 0, 1, bytes(4)), PROTOCOL),
    "WINDOW_UPDATE of 0": (lambda c: raw(8, 0, 0, b"\0\0\0\0"), PROTOCOL),
    "WINDOW_UPDATE of 3 bytes": (lambda c: raw(8, 0, 0, b"\0\0\1"), SIZE),
    "WINDOW_UPDATE of an idle stream": (lambda c: raw(8, 0, 9, b"\0\0\0\1"), PROTOCOL),
    "window of the connection beyond 2^31": (lambda c: 2 * raw(8, 0, 0, b"\x7f\xff\xff\xff"), FLOW),
    "frame beyond SETTINGS_MAX_FRAME_SIZE": (
        lambda c: head(c, 1, ["END_HEADERS"]).serialize() + raw(0, 0, 1, b"x", limits.HTTP2_FRAME_BYTES_MAX + 1),
        SIZE,
    ),
}


@pytest.mark.parametrize("name", BREAKS_CONNECTION)
def test_a_broken_connection_is_sent_away(run, name):
    async def scenario(server):
        client = await server.connect()
        make, code = BREAKS_CONNECTION[name]
        client.write(make(client))
        client.send(PingFrame(0, b"answered"))
        frame = await client.frame(GoAwayFrame | PingFrame)
        assert isinstance(frame, GoAwayFrame), "the connection goes on"
        assert frame.error_code == code
        await client.goaway()
        await others_are_served(server)

    run(scenario)


BREAKS_CALL = {
    "upper-case name": [*PSEUDO, ("X-Upper", "x")],
    "unknown pseudo-header": [*PSEUDO, (":test", "x")],
    "pseudo-header of answers": [*PSEUDO, (":status", "200")],
    "pseudo-header behind others": [("te", "trailers"), *PSEUDO],
    "connection field": [*PSEUDO, ("connection", "keep-alive")],
    "te that is not trailers": [*PSEUDO, ("te", "gzip")],
    "empty path": [(":method", "POST"), (":scheme", "http"), (":path", ""), (":authority", "x")],
    "no method": PSEUDO[1:],
    "no scheme": [PSEUDO[0], *PSEUDO[2:]],
    "no path": [*PSEUDO[:2], PSEUDO[3]],
    "scheme twice": [PSEUDO[1], *PSEUDO],
    "path twice": [PSEUDO[2], *PSEUDO],
    "method twice": [PSEUDO[0], *PSEUDO],
    "line end in a value": [*PSEUDO, ("x", "a\r\nb")],
    "content-length that lies": [*PSEUDO, ("content-length", "5")],
}


@pytest.mark.parametrize("name", BREAKS_CALL)
def test_a_broken_call_is_reset_and_the_connection_goes_on(run, name):
    async def scenario(server):
        client = await server.connect()
        client.send(head(client, 1, fields=BREAKS_CALL[name]))
        client.next_id = 3
        assert (await client.frame(RstStreamFrame, 1)).error_code == PROTOCOL
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


BREAKS_OPEN_CALL = {
    "second head that does not end it": (lambda c, s: raw(1, 4, s, c.encoder.encode([("x", "y")])), PROTOCOL),
    "pseudo-header in trailers": (lambda c, s: raw(1, 5, s, c.encoder.encode([(":method", "POST")])), PROTOCOL),
    "content-length that lies over two frames": (lambda c, s: raw(0, 0, s, b"1234") + raw(0, 1, s, b"5678"), PROTOCOL),
}


@pytest.mark.parametrize("name", BREAKS_OPEN_CALL)
def test_an_open_call_that_breaks_is_reset_and_the_connection_goes_on(run, name):
    async def scenario(server):
        client = await server.connect()
        first = client.head(CHAT, *([("content-length", "7")] if "length" in name else []))
        client.send(first)
        await server.until(lambda: server.chats)
        make, code = BREAKS_OPEN_CALL[name]
        client.write(make(client, first.stream_id))
        assert (await client.frame(RstStreamFrame, first.stream_id)).error_code == code
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: raw(8, 0, s, b"\x7f\xff\xff\xff"),
        lambda s: raw(8, 0, s, b"\x70\0\0\0") + SettingsFrame(0, settings={4: 0x7FFFFFFF}).serialize(),
    ],
    ids=["WINDOW_UPDATE", "SETTINGS"],
)
def test_a_window_of_a_call_beyond_its_bound_ends_the_connection(run, make):
    """RFC 9113, 6.9.1 and 6.9.2; nghttp2 before 1.69 would reset the call."""

    async def scenario(server):
        client = await server.connect()
        stream = client.call(CHAT, body=message(b"x"), end=False)
        await server.until(lambda: server.chats)
        client.write(make(stream))
        assert (await client.goaway()).error_code == FLOW
        assert all(chat.ended for chat in server.chats)
        await others_are_served(server)

    run(scenario)


def test_frames_that_do_nothing_are_taken_up_to_their_bound(run):
    """nghttp2 from 1.67 on has a bound of its own, of 1,000 and 33 a second, unless it is given ours."""

    async def scenario(server):
        client = await server.connect()
        for _ in range(5):
            client.write(b"".join(PriorityFrame(9, depends_on=7).serialize() for _ in range(400)))
            assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


@pytest.mark.parametrize(
    "make",
    [
        lambda c: head(c, 5).serialize() + raw(1, 5, 3, head(c).data),
        lambda c: raw(0x42, 0xFF, 0, b"who knows"),
        lambda c: PriorityFrame(9, depends_on=9).serialize(),
        lambda c: raw(2, 0, 0, bytes(5)),
        lambda c: raw(4, 0, 0, b"\xab\xcd\0\0\0\1"),
        lambda c: raw(6, 1, 0, b"nobodys!"),
        lambda c: raw(6, 0xFE, 0, b"flags of"),
        lambda c: raw(7, 0, 0, bytes(4) + b"\0\0\xff\xff"),
        lambda c: raw(1, 4, 1, head(c).data) + raw(3, 0, 1, b"\0\0\xff\xff") + raw(0, 1, 1, b"late"),
        lambda c: raw(1, 4, 1, head(c).data) + raw(3, 0, 1, b"\0\0\0\x08") + raw(8, 0, 1, b"\0\0\0\1"),
    ],
)
def test_what_a_race_may_cause_is_no_reason_to_part(run, make):
    """HEADERS, DATA and windows of calls that are over, unknown frames, settings, flags and error codes; priorities, as
    nghttp2 looks at none."""

    async def scenario(server):
        client = await server.connect()
        client.write(make(client))
        client.next_id = 11
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", b"\x16\x03\x01\x02\0\x01"]
)
def test_a_bad_preface_closes_the_connection(run, data):
    async def scenario(server):
        client = await server.connect(greet=False)
        client.write(data.ljust(24, b"\0"))
        await client.goaway()
        await server.gone()
        await others_are_served(server)

    run(scenario)


def test_a_preface_without_settings_closes_the_connection(run):
    async def scenario(server):
        client = await server.connect(greet=False)
        client.write(PREFACE + PingFrame(0).serialize())
        assert (await client.goaway()).error_code == PROTOCOL

    run(scenario)


def test_who_never_speaks_is_closed_in_the_end(run):
    async def scenario(server):
        silent = await server.connect(greet=False)
        half = await server.connect()
        half.write(raw(1, 1, 1, b""))
        await server.until(lambda: server.front.connections == 2)
        await server.settle()
        server.sweep(62)
        await silent.goaway()
        await half.goaway()
        await server.gone()

    run(scenario)


def test_a_head_that_was_refused_is_not_waited_for(run):
    async def scenario(server):
        client = await server.connect()
        bad = client.head(ECHO, ("connection", "close"), end=True)
        client.send(bad)
        assert (await client.result(bad.stream_id)).reset == PROTOCOL
        server.sweep(62)
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


def test_calls_beyond_the_bound_are_refused(run):
    async def scenario(server):
        client = await server.connect()
        streams = [client.call(CHAT, end=False) for _ in range(limits.GRPC_STREAMS_MAX + 1)]
        assert (await client.goaway()).last_stream_id < streams[-1]
        await others_are_served(server)

    run(scenario)


def test_rapid_reset_ends_the_connection(run):
    async def scenario(server):
        client = await server.connect()
        for _ in range(limits.HTTP2_RESETS_BURST + 500):
            first = client.head(CHAT)
            client.send(first, RstStreamFrame(first.stream_id, error_code=CANCEL))
        last = await client.goaway()
        assert last.error_code == CALM and last.additional_data == b"too_many_resets"
        assert last.last_stream_id < 2 * (limits.HTTP2_RESETS_BURST + 200)
        assert all(chat.ended for chat in server.chats)
        await others_are_served(server)

    run(scenario)


def test_making_the_server_reset_ends_the_connection(run):
    async def scenario(server):
        client = await server.connect()
        for _ in range(limits.HTTP2_RESETS_BURST + 500):
            first = client.head(CHAT)
            client.send(first)
            client.write(raw(1, 4, first.stream_id, client.encoder.encode([("x", "y")])))
            await asyncio.sleep(0)
            if client.transport.is_closing():
                break
        last = await client.goaway()  # none when the reset of the socket overtakes it: we were still writing
        assert last is None or last.error_code == CALM
        assert all(chat.ended for chat in server.chats)
        await others_are_served(server)

    run(scenario)


def test_a_continuation_flood_ends_the_connection(run):
    async def scenario(server):
        client = await server.connect()
        block = client.encoder.encode([*PSEUDO, ("long", "x" * 8000)])
        client.send(HeadersFrame(1, block[:20]))
        for i in range(200):
            client.send(ContinuationFrame(1, block[20 + i : 21 + i]))
        await client.goaway()
        await others_are_served(server)

    run(scenario)


@pytest.mark.parametrize(
    "make",
    [
        lambda c: SettingsFrame(0, settings={4: 65535}).serialize(),
        lambda c: DataFrame(1, b"").serialize(),
        lambda c: PriorityFrame(1, depends_on=0).serialize(),
        lambda c: PriorityFrame(9, depends_on=7).serialize(),
        lambda c: raw(0x42, 0, 0, b"who"),
        lambda c: raw(0x10, 0, 0, b"\0\0\0\1u=1"),
        lambda c: GoAwayFrame(0, last_stream_id=0).serialize(),
    ],
)
def test_floods_of_frames_that_do_nothing_end_the_connection(run, make):
    async def scenario(server):
        client = await server.connect()
        client.acks = False
        assert client.call(CHAT, end=False) == 1
        client.write(make(client) * (limits.HTTP2_IDLE_FRAMES_MAX + 100))
        last = await client.goaway()  # none when the library has seen the flood first
        assert last is None or last.error_code == CALM
        await others_are_served(server)

    run(scenario)


def test_a_ping_comes_back_as_it_was(run):
    async def scenario(server):
        client = await server.connect()
        client.send(PingFrame(0, b"as it is"))
        answer = await client.frame(PingFrame)
        assert answer.opaque_data == b"as it is" and "ACK" in answer.flags

    run(scenario)


def test_of_several_values_of_a_setting_the_last_one_counts(run):
    async def scenario(server):
        client = await server.connect()
        client.write(raw(4, 0, 0, b"\0\4\0\0\0\0" + b"\0\4\0\0\0\x64"))
        stream = client.call(ECHO, body=message(b"x" * 500))
        assert len((await client.frame(DataFrame, stream)).data) == 100

    run(scenario)


def test_a_window_below_zero_is_filled_up_before_anything_is_sent(run):
    async def scenario(server):
        client = await server.connect()
        client.write(SettingsFrame(0, settings={4: 10}).serialize())
        stream = client.call(ECHO, body=message(b"x" * 500))
        assert len((await client.frame(DataFrame, stream)).data) == 10
        client.write(SettingsFrame(0, settings={4: 4}).serialize() + raw(8, 0, stream, b"\0\0\0\x06"))
        client.write(raw(8, 0, stream, b"\0\0\0\x05"))
        assert len((await client.frame(DataFrame, stream)).data) == 5

    run(scenario)


def test_pings_that_come_too_often_end_the_connection(run):
    async def scenario(server):
        client = await server.connect()
        for _ in range(4):
            client.send(PingFrame(0, b"12345678"))
        last = await client.goaway()
        assert last.error_code == CALM and last.additional_data == b"too_many_pings"

    run(scenario)


def test_pings_between_answers_are_welcome(run):
    async def scenario(server):
        client = await server.connect()
        for _ in range(20):
            client.send(PingFrame(0, b"12345678"))
            assert (await client.ask(ECHO, b"x")).status == "0"

    run(scenario)


def test_random_frames_never_hurt_others(run):
    async def scenario(server):
        for seed in range(60):
            noise = random.Random(seed).randbytes(400)
            client = await server.connect()
            for i in range(0, 390, 13):
                body = noise[i + 3 : i + 3 + noise[i + 12] % 10]
                client.write(raw(noise[i] % 11, noise[i + 1], noise[i + 2] % 4, body))
            await server.settle()
            client.close()
        await server.gone()
        await others_are_served(server)

    run(scenario)


def test_random_bytes_never_hurt_others(run):
    async def scenario(server):
        for seed in range(40):
            client = await server.connect()
            client.write(random.Random(seed).randbytes(300))
            await server.settle()
            client.close()
        await server.gone()
        await others_are_served(server)

    run(scenario)


def test_random_messages_get_a_status(run):
    async def scenario(server):
        client = await server.connect()
        for seed in range(100):
            noise = random.Random(seed)
            result = await client.result(client.call(ECHO, body=noise.randbytes(1) * 5 + noise.randbytes(7)))
            assert result.status is not None

    run(scenario)


def test_a_connection_that_breaks_off_lets_go_of_all(run):
    async def scenario(server):
        client = await server.connect()
        client.call(CHAT, body=message(b"x" * 1000)[:500], end=False)
        client.call(ECHO, body=message(b"x" * 1000)[:500], end=False)
        await server.until(lambda: server.chats)
        client.transport.abort()
        await server.gone()
        assert server.chats[0].ended

    run(scenario)
