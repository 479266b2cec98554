"""What one client's HTTP/2 frames may cost: counted, never timed."""

from __future__ import annotations

import asyncio

import pytest
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, RstStreamFrame, WindowUpdateFrame

from tests.front.grpc.call_helpers import asked, field, request
from tests.front.grpc.frame_helpers import CALM, PSEUDO, head, others_are_served, raw
from tests.front.grpc.helpers import CHAT, ECHO, INFER, PREFACE, STREAM_INFER, message
from tisfast import limits, tuning

CANCEL = 8


def test_a_call_that_never_began_may_be_cancelled(run):
    """As grpcio up to 1.67 does; its own server passes over it."""

    async def scenario(server):
        client = await server.connect()
        open_call = client.call(CHAT, body=message(b"a"), end=False)
        client.send(RstStreamFrame(3, error_code=CANCEL))
        client.next_id = 5
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]
        client.send(DataFrame(open_call, message(b"b"), flags=["END_STREAM"]))
        assert (await client.result(open_call)).messages == [b"a", b"a", b"b", b"b"]

    run(scenario)


@pytest.mark.parametrize("size", [1, 2, 5, 9, 10, 12, 13, 14, 1000])
def test_frames_are_told_apart_however_they_come(run, size):
    async def scenario(server):
        client = await server.connect(greet=False)
        reset = RstStreamFrame(99, error_code=CANCEL).serialize()
        call = client.head(ECHO).serialize() + DataFrame(1, message(b"x"), flags=["END_STREAM"]).serialize()
        data = PREFACE + raw(4, 0, 0, b"") + reset + reset + call + reset
        for at in range(0, len(data), size):
            client.write(data[at : at + size])
            await server.settle()
        assert (await client.result(1)).messages == [b"x"]

    run(scenario)


def test_a_reset_within_a_header_block_is_no_call_that_never_began(run):
    async def scenario(server):
        client = await server.connect()
        client.write(raw(1, 1, 1, b"") + raw(3, 0, 3, b"\0\0\0\x08"))
        assert (await client.goaway()).error_code == 1

    run(scenario)


FLOODS = {
    "acknowledgements of pings": lambda c: raw(6, 1, 0, b"12345678"),
    "windows of the connection": lambda c: raw(8, 0, 0, b"\0\0\0\1"),
    "windows of a call": lambda c: raw(8, 0, 1, b"\0\0\0\1"),
    "padding": lambda c: raw(0, 8, 1, b"\xff" + bytes(255)),
    "one byte of a message": lambda c: raw(0, 0, 1, b"x"),
    "resets of calls that never began": lambda c: RstStreamFrame(3001, error_code=CANCEL).serialize(),
}


@pytest.mark.parametrize("name", FLOODS)
def test_frames_without_end_are_counted(run, name):
    async def scenario(server):
        client = await server.connect()
        assert client.call(CHAT, body=message(bytes(1 << 20))[:100], end=False) == 1
        client.write(FLOODS[name](client) * (limits.HTTP2_IDLE_FRAMES_MAX + 100))
        last = await client.goaway()
        assert last.error_code == CALM and last.additional_data == b"too_many_idle_frames"
        await others_are_served(server)

    run(scenario)


def test_honest_frames_excuse_what_belongs_to_them(run):
    """Twice the bound of small messages, each with a window and two pieces, within one second."""

    async def scenario(server):
        client = await server.connect()
        call = client.call(CHAT, end=False)
        window = raw(8, 0, 0, b"\0\0\0\x10")
        one = DataFrame(call, message(b"x")[:5]).serialize() + DataFrame(call, b"x").serialize() + window
        for _ in range(20):
            client.write(one * (limits.HTTP2_IDLE_FRAMES_MAX // 10))
            for _ in range(2 * limits.HTTP2_IDLE_FRAMES_MAX // 10):
                await client.frame(DataFrame, call)
        client.send(DataFrame(call, b"", flags=["END_STREAM"]))
        assert (await client.result(call)).status == "0"

    run(scenario)


def test_a_burst_of_the_smallest_inferences_is_honest(run):
    """Each in a frame of its own; they are counted before any is handled, and half the bound would not do."""
    burst = 6000

    async def scenario(server):
        async def execute():
            while True:
                while server.link.dispatched:
                    server.execute()
                await asyncio.sleep(0)

        client = await server.connect()
        call = client.call(STREAM_INFER, end=False)
        tensor = field(1, b"I") + field(2, b"FP32") + b"\x1a\x01\x01"
        one = message(field(1, b"m") + field(5, tensor) + field(7, bytes(4)))
        assert len(one) < limits.HTTP2_SMALL_DATA_BYTES
        executing = asyncio.ensure_future(execute())
        client.write(DataFrame(call, one).serialize() * burst)
        answers = 0
        while answers < burst:
            data = await client.frame(DataFrame, call)
            client.refill(call, len(data.data))
            answers += 1
        executing.cancel()
        client.send(DataFrame(call, b"", flags=["END_STREAM"]))
        assert (await client.result(call)).status == "0"

    run(scenario)


def bombs(client, references, count):
    """Heads of few bytes that stand for many: references to one field of 3.9 KB."""
    client.send(HeadersFrame(1, client.encoder.encode([*PSEUDO, ("a" * 10, "b" * 3900)]), flags=["END_HEADERS"]))
    for i in range(count):
        block = client.encoder.encode(PSEUDO) + b"\xbe" * references
        client.send(HeadersFrame(3 + 2 * i, block, flags=["END_HEADERS", "END_STREAM"]))


def test_a_head_that_is_somewhat_too_long_is_told_so(run):
    async def scenario(server):
        client = await server.connect()
        bombs(client, 5, 1)
        assert (await client.result(3)).text.startswith("received metadata size exceeds limit (")
        client.next_id = 5
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


def test_a_head_that_is_far_too_long_is_reset_and_hpack_stays_in_step(run):
    async def scenario(server):
        client = await server.connect()
        bombs(client, 16_000, 1)
        assert (await client.result(3)).reset == 2
        client.next_id = 5
        assert (await client.ask(ECHO, b"x", ("a" * 10, "b" * 3900))).messages == [b"x"]
        server.sweep(62)
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


@pytest.mark.parametrize("references", [5, 16_000])
def test_who_sends_such_heads_again_and_again_is_sent_away(run, references):
    async def scenario(server):
        client = await server.connect()
        bombs(client, references, limits.HTTP2_LARGE_HEADS_MAX + 10)
        last = await client.goaway()
        assert last.error_code == CALM and last.additional_data == b"too_many_large_heads"
        await others_are_served(server)

    run(scenario)


def test_trailers_are_bounded_as_heads_are(run):
    async def scenario(server):
        client = await server.connect()
        client.send(HeadersFrame(1, client.encoder.encode([*PSEUDO, ("a" * 10, "b" * 3900)]), flags=["END_HEADERS"]))
        client.write(raw(1, 5, 1, b"\xbe" * 16_000))
        client.next_id = 3
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


@pytest.mark.parametrize("frames", [[65_537], [60_000, 6_000]])
def test_a_header_block_is_bounded_as_it_comes(run, frames):
    async def scenario(server):
        client = await server.connect()
        for i, nbytes in enumerate(frames):
            client.write(raw(9 if i else 1, 0, 1, bytes(nbytes)))
        last = await client.goaway()
        assert last.error_code == CALM and last.additional_data == b"too_large_head"
        await others_are_served(server)

    run(scenario)


@pytest.mark.parametrize("value", ["a ", " a", "\ta", "a\t", " "])
def test_values_with_spaces_at_their_ends_are_taken(run, value):
    async def scenario(server):
        client = await server.connect()
        assert (await client.ask(ECHO, b"x", ("x-user", value))).messages == [b"x"]
        assert server.metadata["x-user"] == value

    run(scenario)


def test_pings_are_answered_while_frames_are_counted(run):
    async def scenario(server):
        client = await server.connect()
        assert client.call(INFER, end=False) == 1
        client.send(PingFrame(0, b"answered"))
        assert (await client.frame(PingFrame)).opaque_data == b"answered"
        client.send(head(client, 3))

    run(scenario)


# ---- messages of streams

EMPTY = message(b"")


def flood(client, path, data, calls):
    """The same messages on each of so many calls."""
    started = [client.call(path, end=False) for _ in range(calls)]
    for call in started:
        client.body(call, data)
    return started


async def steps(server, count, end):
    """By how much `count` grows from turn to turn of the loop, until it is `end`."""
    grown, before = [], count()
    while before < end:
        await asyncio.sleep(0)
        grown.append(count() - before)
        before = count()
    return grown


def test_a_turn_of_the_loop_handles_few_messages_whoever_sends_them(run):
    async def scenario(server):
        clients = [await server.connect() for _ in range(4)]
        for client in clients:
            flood(client, STREAM_INFER, message(request()) * 500, 2)
        grown = await steps(server, lambda: asked(server), 4000)
        assert max(grown) <= tuning.GRPC_TURN_MESSAGES + len(clients)

    run(scenario)


@pytest.mark.parametrize("data", [EMPTY, message(request(model=b"none")), message(field(1, b"m"))])
def test_a_turn_of_the_loop_refuses_few_messages(run, data):
    async def scenario(server):
        clients = [await server.connect(window=0) for _ in range(4)]
        for client in clients:
            flood(client, STREAM_INFER, data * 4000, 10)
        kept = limits.GRPC_CONNECTION_UNSENT_BYTES_MAX // 2
        grown = await steps(
            server, lambda: sum(connection.unsent for connection in server.front._shared.connections), kept
        )
        assert max(grown) <= 1000 * (tuning.GRPC_TURN_MESSAGES + len(clients))

    run(scenario)


def test_long_messages_are_more_of_a_turn(run):
    async def scenario(server):
        client = await server.connect()
        flood(client, STREAM_INFER, message(request(values=2100)) * 300, 2)
        grown = await steps(server, lambda: asked(server), 600)
        assert max(grown) <= tuning.GRPC_TURN_MESSAGES // 2

    run(scenario)


class Watched(asyncio.BufferedProtocol):
    """A connection, and the turn in which it received something last."""

    def __init__(self, inner, turns):
        self._inner, self._turns, self.heard = inner, turns, 0

    def buffer_updated(self, n):
        self.heard = self._turns[0]
        self._inner.buffer_updated(n)

    def __getattribute__(self, name):
        if name.startswith("_") or name in {"heard", "buffer_updated"}:
            return super().__getattribute__(name)
        return getattr(self._inner, name)


def test_who_sends_one_message_waits_for_no_flood(run):
    """Counted from the turn in which the server has it: when that is, is the kernel's affair."""

    async def scenario(server):
        turns, made = [0], []

        def make():
            made.append(Watched(server.front.protocol_factory(), turns))
            return made[-1]

        listener = await server.loop.create_server(make, "127.0.0.1", 0)
        hostile = await server.connect()
        server.port = listener.sockets[0].getsockname()[1]
        other = await server.connect()
        flood(hostile, STREAM_INFER, EMPTY * 3000, 50)
        await server.until(lambda: len(server.front._shared.turns.parked) >= 20)
        answer = asyncio.ensure_future(other.ask(ECHO, b"x", ("x-user", "other")))
        while not server.metadata:
            await asyncio.sleep(0)
            turns[0] += 1
        assert server.front._shared.turns.parked and turns[0] - made[0].heard <= 5
        assert (await answer).messages == [b"x"]
        listener.close()

    run(scenario)


@pytest.mark.parametrize(("path", "data"), [(STREAM_INFER, EMPTY), (CHAT, message(b"x"))])
def test_what_nobody_reads_is_bounded(run, path, data):
    async def scenario(server):
        client = await server.connect(window=0)
        calls = flood(client, path, data * 5000, 30)
        [connection] = server.front._shared.connections
        await server.until(lambda: connection.unsent >= limits.GRPC_CONNECTION_UNSENT_BYTES_MAX)
        assert (await other_answer(server)).messages == [b"x"]
        await server.until(lambda: not server.front._shared.turns.parked)
        assert connection.unsent < limits.GRPC_CONNECTION_UNSENT_BYTES_MAX + 1000 * len(calls)
        client.send(*(RstStreamFrame(call, error_code=CANCEL) for call in calls))
        await server.until(lambda: connection.unsent == 0)

    run(scenario)


async def other_answer(server):
    client = await server.connect()
    return await client.ask(ECHO, b"x")


@pytest.mark.parametrize(("path", "times"), [(STREAM_INFER, 1), (CHAT, 2)])
def test_every_message_that_was_held_is_answered_once_answers_are_read(run, path, times):
    async def scenario(server):
        client = await server.connect(window=0)
        [call] = flood(client, path, message(b"x") * 3000, 1)
        client.body(call, b"", end=True)
        [connection] = server.front._shared.connections
        await server.until(lambda: connection.unsent >= limits.GRPC_UNSENT_BYTES_MAX)
        client.send(WindowUpdateFrame(call, window_increment=1 << 24))
        result = await client.result(call)
        assert result.status == "0" and len(result.messages) == times * 3000
        assert connection.unsent == 0

    run(scenario)


def test_refused_messages_excuse_no_frames(run):
    async def scenario(server):
        client = await server.connect(window=0)
        call = client.call(STREAM_INFER, end=False)
        one = DataFrame(call, EMPTY).serialize() + raw(8, 0, 0, b"\0\0\0\1")
        client.write(one * (limits.HTTP2_IDLE_FRAMES_MAX // 2 + 100))
        last = await client.goaway()
        assert last.error_code == CALM and last.additional_data == b"too_many_idle_frames"
        await others_are_served(server)

    run(scenario)
