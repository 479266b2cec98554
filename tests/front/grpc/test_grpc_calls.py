"""Calls that are no inferences: framing, compression, metadata, deadlines, status."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from urllib.parse import unquote

import pytest
from hyperframe.frame import DataFrame, HeadersFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame

from tests.front.grpc.helpers import CHAT, CRASH, CRASHING_CHAT, ECHO, FAIL, WATCH, message
from tisfast import limits
from tisfast.operations.grpc.methods import UnaryMethod


def test_a_message_comes_back_with_status_0(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(ECHO, b"hello")
        assert result.messages == [b"hello"] and result.status == "0" and result.reset is None
        assert result.headers[":status"] == "200" and result.headers["content-type"] == "application/grpc"
        assert result.headers["grpc-accept-encoding"] == "identity, deflate, gzip"

    run(scenario)


def test_an_empty_message_is_a_message(run):
    async def scenario(server):
        client = await server.connect()
        assert (await client.ask(ECHO, b"")).messages == [b""]

    run(scenario)


@pytest.mark.parametrize("size", [1, 3, 7, 16384])
def test_a_message_may_come_in_pieces(run, size):
    async def scenario(server):
        client = await server.connect()
        head = client.head(ECHO)
        client.send(head)
        client.body(head.stream_id, message(b"0123456789" * 10), end=True, size=size)
        assert (await client.result(head.stream_id)).messages == [b"0123456789" * 10]

    run(scenario)


def test_the_end_of_a_call_may_come_in_a_frame_of_its_own(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(ECHO, body=message(b"x"), end=False)
        await server.settle()
        client.send(DataFrame(stream, b"", flags=["END_STREAM"]))
        assert (await client.result(stream)).messages == [b"x"]

    run(scenario)


def test_metadata_reaches_the_method(run):
    async def scenario(server):
        client = await server.connect()
        await client.ask(ECHO, b"", ("some-key", "some value"))
        assert server.metadata["some-key"] == "some value"

    run(scenario)


def test_an_error_is_a_status_with_percent_encoded_text(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(FAIL, "100% ünknown\n".encode())
        assert result.status == "5" and result.messages == []
        assert result.text == "100%25 %C3%BCnknown%0A"

    run(scenario)


def test_a_bug_in_a_method_is_answered_and_reported(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(CRASH)
        assert result.status == "13" and "ZeroDivisionError" in result.text
        assert isinstance(server.errors.pop()["exception"], ZeroDivisionError)
        assert (await client.ask(ECHO, b"on")).messages == [b"on"]

    run(scenario)


def test_an_unknown_method_is_unimplemented(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask("/no.Such/Method")
        assert result.status == "12" and "/no.Such/Method" in result.text

    run(scenario)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"method": "PUT"}, "405"),
        ({"content_type": "text/html"}, "415"),
        ({"content_type": "application/grpcx"}, "415"),
    ],
)
def test_what_is_no_grpc_gets_an_http_status(run, options, status):
    async def scenario(server):
        client = await server.connect()
        assert (await client.ask(ECHO, b"", **options)).headers[":status"] == status

    run(scenario)


@pytest.mark.parametrize("content_type", ["application/grpc+proto", "application/grpc;x=y"])
def test_content_types_of_grpc(run, content_type):
    async def scenario(server):
        client = await server.connect()
        assert (await client.ask(ECHO, b"x", content_type=content_type)).status == "0"

    run(scenario)


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_messages_are_expanded(run, coding, pack):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(ECHO, ("grpc-encoding", coding), body=message(pack(b"abc" * 1000), True))
        assert (await client.result(stream)).messages == [b"abc" * 1000]

    run(scenario)


def test_a_coding_that_is_not_served_is_unimplemented(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(ECHO, b"", ("grpc-encoding", "br"))
        assert result.status == "12" and "br" in result.text
        assert "gzip" in result.headers["grpc-accept-encoding"]

    run(scenario)


def test_wrong_compression_is_told(run):
    async def scenario(server):
        client = await server.connect()
        assert (await client.result(client.call(ECHO, body=message(b"x", True)))).status == "13"
        broken = client.call(ECHO, ("grpc-encoding", "gzip"), body=message(b"x", True))
        assert (await client.result(broken)).status == "3"
        flagged = client.call(ECHO, body=b"\x02" + message(b"x")[1:])
        assert "flag 2" in (await client.result(flagged)).text

    run(scenario)


@pytest.mark.parametrize(
    ("level", "accepts", "coding"),
    [
        ("none", "identity,gzip", None),
        ("low", "identity,gzip,deflate", "gzip"),
        ("medium", "deflate, gzip", "deflate"),
        ("high", "gzip", "gzip"),
        ("high", "identity", None),
    ],
)
def test_answers_are_compressed_as_the_level_says_and_the_client_accepts(run, level, accepts, coding):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(ECHO, ("grpc-accept-encoding", accepts), body=message(b"abc" * 1000))
        frames = [await client.frame(HeadersFrame, stream), await client.frame(DataFrame, stream)]
        assert dict(frames[0].fields).get("grpc-encoding") == coding
        assert frames[1].data[0] == (coding is not None)
        if coding:
            assert zlib.decompress(frames[1].data[5:], 47) == b"abc" * 1000

    run(scenario, compression=level)


def test_no_message_and_two_messages_are_refused(run):
    async def scenario(server):
        client = await server.connect()
        head = client.head(ECHO, end=True)
        client.send(head)
        assert "none came" in (await client.result(head.stream_id)).text
        stream = client.call(ECHO, body=message(b"a") + message(b"b"))
        assert "second one" in (await client.result(stream)).text

    run(scenario)


def test_half_a_message_is_told(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.result(client.call(ECHO, body=message(b"0123456789")[:-3]))
        assert result.status == "13" and "7 of its 10 bytes" in result.text

    run(scenario)


def test_a_message_that_claims_too_much_is_refused_before_it_comes(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.result(client.call(ECHO, body=b"\0\xff\xff\xff\xff", end=False))
        assert result.status == "8" and "4294967295" in result.text
        assert (await client.frame(RstStreamFrame)).error_code == 0
        result = await client.result(client.call(ECHO, body=b"\0\x50\0\0\0x", end=False))
        assert result.status == "8" and "1342177280" in result.text

    run(scenario)


def test_metadata_has_a_bound(run):
    async def scenario(server):
        client = await server.connect()
        head = client.head(ECHO, ("long", "x" * 8000), ("longer", "y" * 8000), ("more", "z" * 300))
        client.send(head)
        result = await client.result(head.stream_id)
        assert result.status == "8" and "metadata" in result.text

    run(scenario)


def test_a_deadline_ends_a_call(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.result(client.call(CHAT, ("grpc-timeout", "5m"), end=False))
        assert result.status == "4" and server.chats[0].ended

    run(scenario)


def test_both_sides_of_a_stream_go_on_at_the_same_time(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(CHAT, body=message(b"a"), end=False)
        await client.frame(HeadersFrame, stream)
        assert (await client.frame(DataFrame, stream)).data == message(b"a")
        assert (await client.frame(DataFrame, stream)).data == message(b"a")
        server.chats[0].push(b"pushed")
        assert (await client.frame(DataFrame, stream)).data == message(b"pushed")
        client.send(DataFrame(stream, message(b"b"), flags=["END_STREAM"]))
        result = await client.result(stream)
        assert result.messages == [b"b", b"b"] or result.status == "0"
        assert server.chats[0].ended

    run(scenario)


def test_an_error_ends_a_stream_behind_what_was_sent(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.result(client.call(CHAT, body=message(b"a") + message(b"bad") + message(b"c"), end=False))
        assert result.messages == [b"a", b"a"] and result.status == "5"

    run(scenario)


def test_watching_ends_with_the_client_only(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(WATCH, body=message(b"a"))
        await client.frame(DataFrame, stream)
        await server.settle()
        assert not server.chats[0].ended
        client.send(RstStreamFrame(stream, error_code=8))
        await server.until(lambda: server.chats[0].ended)
        server.chats[0].push(b"too late")

    run(scenario)


def test_many_calls_share_a_connection(run):
    async def scenario(server):
        client = await server.connect()
        streams = [client.call(ECHO, body=message(b"%d" % i)) for i in range(500)]
        for i, stream in enumerate(streams):
            assert (await client.result(stream)).messages == [b"%d" % i]

    run(scenario)


def test_large_messages_go_both_ways(run):
    async def scenario(server):
        client = await server.connect()
        data = bytes(range(256)) * (20 << 12)
        client.write(b"")
        result = await client.ask(ECHO, data)
        assert result.messages == [data]

    run(scenario)


def test_nothing_is_sent_beyond_the_client_s_window(run):
    async def scenario(server):
        client = await server.connect(**{})
        stream = client.call(ECHO, body=message(b"x" * 100_000))
        await client.result(stream)
        server.times = 1000
        stream = client.call(ECHO, body=message(b"y" * 100_000))
        got = 0
        await client.frame(HeadersFrame, stream)
        while got < (1 << 24) - 100_000:
            got += len((await client.frame(DataFrame, stream)).data)
        await server.settle()
        client.send(WindowUpdateFrame(0, window_increment=1 << 30), WindowUpdateFrame(stream, window_increment=1 << 30))
        while got < 100_000 * 1000 + 5:
            got += len((await client.frame(DataFrame, stream)).data)
        assert "END_STREAM" in (await client.frame(HeadersFrame, stream)).flags

    run(scenario)


def test_a_client_that_reads_nothing_is_reset_in_the_end(run):
    async def scenario(server):
        server.times = 300
        client = await server.connect()
        client.call(ECHO, body=message(b"y" * 100_000))
        await server.settle()
        client.transport.pause_reading()
        await asyncio.sleep(0)
        server.sweep(200)
        client.transport.resume_reading()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            while True:
                if isinstance(await client.read(), RstStreamFrame):
                    raise ConnectionResetError

    run(scenario)


def test_a_message_that_stands_still_ends_its_call(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(ECHO, body=message(b"0123456789")[:-3], end=False)
        await server.settle()
        server.sweep(62)
        result = await client.result(stream)
        assert result.status == "4" and "no byte" in result.text

    run(scenario)


def test_a_message_that_waits_for_the_end_of_its_call_counts_and_has_a_time_limit(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(ECHO, body=message(b"0123456789"), end=False)
        await server.until(lambda: server.front._shared.collected_bytes == 10)
        await server.settle()
        assert server.front._shared.collected_bytes == 10
        server.sweep(62)
        result = await client.result(stream)
        assert result.status == "4" and "did not end its side" in result.text
        assert server.front._shared.collected_bytes == 0

    run(scenario)


def test_a_held_message_is_let_go_with_its_connection(run):
    async def scenario(server):
        client = await server.connect()
        client.call(ECHO, body=message(b"0123456789"), end=False)
        await server.until(lambda: server.front._shared.collected_bytes == 10)
        client.close()
        await server.gone()

    run(scenario)


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 50_000, "x" + "€" * 30_000, "xx" + "\U0001f600" * 70_000])
def test_a_long_error_text_is_cut_at_a_character(run, text):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(FAIL, text.encode())
        assert result.status == "5" and 4000 < len(result.text) <= limits.GRPC_STATUS_TEXT_BYTES_MAX
        kept = unquote(result.text, errors="strict")
        assert kept.endswith("...") and text.startswith(kept[:-3])

    run(scenario)


def test_a_streaming_call_that_cannot_be_opened_is_answered_and_reported(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(CRASHING_CHAT, body=message(b"x"), end=False)
        result = await client.result(stream)
        assert result.status == "13" and "ZeroDivisionError" in result.text
        assert [type(error["exception"]) for error in server.errors] == [ZeroDivisionError]
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]
        server.errors.clear()

    run(scenario)


@pytest.mark.parametrize("word", [b"bug", b"bad"])
def test_a_bug_in_a_streaming_method_is_answered_and_reported(run, word):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(CHAT, word)
        assert result.status == ("13" if word == b"bug" else "5")
        assert [type(error["exception"]) for error in server.errors] == [ZeroDivisionError] * (word == b"bug")
        server.errors.clear()
        assert (await client.ask(ECHO, b"x")).status == "0"

    run(scenario)


def test_an_answer_that_comes_late_has_all_its_time_to_leave(run):
    class Late:
        def __init__(self, loop):
            self.answer = loop.create_future()

        def unary(self, path):
            return UnaryMethod(lambda *_: self.answer, "health") if path == ECHO else None

    async def scenario(server):
        client = await server.connect()
        client.send(SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 0}))
        stream = client.call(ECHO, body=message(b"x"))
        await server.settle()
        server.sweep(limits.GRPC_STALL_SECONDS_MAX + 1)
        server.front._shared.methods.answer.set_result(b"answer")
        await server.settle()
        server.sweep(1)
        client.send(WindowUpdateFrame(stream, window_increment=100))
        result = await client.result(stream)
        assert result.messages == [b"answer"] and result.reset is None

    run(scenario, methods=Late)


@pytest.mark.parametrize("coded", [True, False])
def test_a_message_is_no_larger_than_its_method_can_use(run, coded):
    async def scenario(server):
        client = await server.connect()
        data = bytes(2 << 20)
        fields = [("grpc-encoding", "gzip")] if coded else []
        stream = client.call(FAIL, *fields, body=message(gzip.compress(data) if coded else data, coded))
        result = await client.result(stream)
        assert result.status == ("3" if coded else "8") and str(1 << 20) in result.text

    run(scenario)
