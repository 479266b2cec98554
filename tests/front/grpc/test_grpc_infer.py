"""ModelInfer and ModelStreamInfer on the wire; the instance is fake and fails when told to."""

from __future__ import annotations

import gzip
import struct

import pytest
from hyperframe.frame import DataFrame, GoAwayFrame, RstStreamFrame, WindowUpdateFrame

from tests.front.grpc.call_helpers import asked, field, request
from tests.front.grpc.helpers import CHAT, ECHO, INFER, STREAM_INFER, message
from tisfast import limits

LARGE = struct.pack("<200000f", *range(200_000))


def large_request(id=b"") -> bytes:
    """As `request`, with a tensor of 800 KB."""
    tensor = field(5, field(1, b"I") + field(2, b"FP32") + field(3, b"\xc0\x9a\x0c"))
    return field(1, b"m") + field(3, id) + tensor + field(7, LARGE)


def tensor_of(request) -> bytes:
    """The bytes of the one input of a request that a link got; the record has its place last, but for the id."""
    record = request.input.record
    place = len(record) - 16 - len(request.input.id)
    return request.input.read(*struct.unpack_from("<QQ", record, place))


def error_of(data: bytes) -> str:
    assert data[0] == 1 << 3 | 2
    return data[2 : 2 + data[1]].decode()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("size", [1, 9, 16384])
def test_a_request_reaches_the_model_however_it_is_cut(run, late, size):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(INFER, end=False)
        client.body(stream, message(request(late=late)), end=True, size=size)
        await server.dispatched(1)
        assert server.link.dispatched[0][0].input.batch == 1
        server.execute()
        result = await client.result(stream)
        assert result.status == "13" and result.text == "model says no" and result.messages == []

    run(scenario)


@pytest.mark.parametrize("size", [1_000_000, 300_000, 70_000])
@pytest.mark.parametrize("pads", [0, 200])
@pytest.mark.parametrize("piece", [0, 150_000, 20_000])
def test_a_large_tensor_is_received_in_its_place_however_it_comes(run, size, pads, piece):
    """size: of a frame; piece: of what the socket gets at one time."""

    async def scenario(server):
        client = await server.connect()
        for count in (1, 2):
            head = client.head(INFER)
            body = message(large_request(b"%d" % count))
            frames = [body[at : at + size] for at in range(0, len(body), size)]
            how = {"pad_length": pads, "flags": ["PADDED"] if pads else []}
            wire = b"".join(DataFrame(head.stream_id, data, **how).serialize() for data in frames)
            wire = head.serialize() + wire + DataFrame(head.stream_id, flags=["END_STREAM"]).serialize()
            for at in range(0, len(wire), piece or len(wire)):
                client.write(wire[at : at + (piece or len(wire))])
                await server.settle()
            await server.dispatched(1)
            (asked,) = server.link.dispatched[0]
            assert asked.input.id == str(count) and tensor_of(asked) == LARGE
            server.execute()
            assert (await client.result(head.stream_id)).status == "13"
        assert (await client.ask(ECHO, b"small")).messages == [b"small"]

    run(scenario)


def test_who_watches_for_answers_is_told_of_a_tensor_that_is_nearly_there(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(INFER, end=False)
        body = message(large_request())
        client.body(stream, body[:-1], size=len(body) // 2)
        await server.until(lambda: server.link.expected)
        assert not server.link.dispatched
        client.body(stream, body[-1:], end=True)
        await server.dispatched(1)
        server.execute()

    run(scenario)


def test_large_tensors_of_several_calls_mix(run):
    async def scenario(server):
        client = await server.connect()
        streams = [client.call(INFER, end=False) for _ in range(3)]
        bodies = [message(large_request(b"%d" % stream)) for stream in streams]
        for at in range(0, len(bodies[0]), 90_000):
            for stream, body in zip(streams, bodies, strict=True):
                client.body(stream, body[at : at + 90_000], size=90_000)
        for stream in streams:
            client.body(stream, b"", end=True)
        for _ in streams:
            await server.dispatched(1)
            assert tensor_of(server.link.dispatched[0][0]) == LARGE
            server.execute()

    run(scenario)


def test_a_call_that_is_taken_back_in_the_middle_of_a_large_tensor_gives_its_memory_back(run):
    async def scenario(server):
        client = await server.connect()
        used = server.runtime.arena.used_bytes
        stream = client.call(INFER, end=False)
        client.body(stream, message(large_request())[:500_000], size=500_000)
        await server.until(lambda: server.runtime.arena.used_bytes > used)
        await server.settle()
        client.send(RstStreamFrame(stream, error_code=8))
        await server.until(lambda: server.runtime.arena.used_bytes == used)
        late = client.call(INFER, ("grpc-timeout", "50m"), end=False)
        wire = DataFrame(late, message(large_request())[:600_000]).serialize()
        client.write(wire[:300_000])  # its deadline passes in the middle of the frame
        assert (await client.result(late)).status == "4"
        client.write(wire[300_000:])
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]
        await server.until(lambda: server.runtime.arena.used_bytes == used)

    run(scenario)


def test_a_compressed_request_is_expanded(run):
    async def scenario(server):
        client = await server.connect()
        client.call(INFER, ("grpc-encoding", "gzip"), body=message(gzip.compress(request()), True))
        await server.dispatched(1)

    run(scenario)


def test_a_request_waits_for_the_end_of_its_call(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(INFER, body=message(request()), end=False)
        await server.settle()
        assert not server.link.dispatched
        client.send(DataFrame(stream, b"", flags=["END_STREAM"]))
        await server.dispatched(1)

    run(scenario)


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (message(request(model=b"nope")), "5", "unknown model: 'nope'"),
        (message(b"\xff\xff\xff"), None, ""),
        (message(b""), None, ""),
        (b"", "13", "none came"),
        (message(request()) * 2, "13", "second one"),
        (message(request())[:-1], "13", "bytes"),
        (b"\0\x7f\xff\xff\xff" + request(), "14", "no room"),
    ],
)
def test_bad_requests_get_a_status(run, body, status, text):
    async def scenario(server):
        client = await server.connect()
        result = await client.result(client.call(INFER, body=body))
        assert result.status not in (None, "0") and status in (None, result.status) and text in result.text

    run(scenario)


def test_decoupled_models_answer_streams_only(run):
    async def scenario(server):
        client = await server.connect()
        result = await client.ask(INFER, request())
        assert result.status == "12"
        assert result.text == "ModelInfer RPC doesn't support models with decoupled transaction policy"

    run(scenario, decoupled=True)


def test_a_deadline_takes_a_queued_request_out_of_the_queue(run):
    async def scenario(server):
        client = await server.connect()
        for _ in range(2):
            client.call(INFER, body=message(request()))  # keep the instance busy
        await server.dispatched(2)
        stream = client.call(INFER, ("grpc-timeout", "20m"), body=message(request()))
        await server.until(lambda: server.runtime.queued == 1)
        assert (await client.result(stream)).status == "4"
        assert server.runtime.queued == 0

    run(scenario)


def test_a_cancelled_call_leaves_the_queue(run):
    async def scenario(server):
        client = await server.connect()
        streams = [client.call(INFER, body=message(request())) for _ in range(4)]
        await server.until(lambda: server.runtime.queued == 2)
        client.send(RstStreamFrame(streams[-1], error_code=8))
        await server.until(lambda: server.runtime.queued == 1)
        client.transport.abort()
        await server.until(lambda: server.runtime.queued == 0)

    run(scenario)


def test_an_answer_that_races_with_a_cancellation_is_dropped(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(INFER, body=message(request()))
        await server.dispatched(1)
        client.send(RstStreamFrame(stream, error_code=8))
        await server.settle()
        server.execute()
        assert (await client.ask(ECHO, b"x")).messages == [b"x"]

    run(scenario)


def test_an_answer_that_races_with_a_deadline_is_one_answer(run):
    async def scenario(server):
        client = await server.connect()
        for microseconds in range(0, 2000, 100):
            stream = client.call(INFER, ("grpc-timeout", f"{microseconds}u"), body=message(request()))
            await server.settle()
            if server.link.dispatched:
                server.execute()
            assert (await client.result(stream)).status in ("4", "13")

    run(scenario)


def test_a_stream_answers_in_order_errors_included(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(STREAM_INFER, end=False)
        for i in range(3):
            client.body(stream, message(request(id=b"%d" % i)))
            client.body(stream, message(request(model=b"no%d" % i)))
        client.body(stream, b"", end=True)
        for _ in range(3):
            await server.dispatched(1)
            server.execute()
        result = await client.result(stream)
        texts = [error_of(data) for data in result.messages]
        assert result.status == "0"
        assert ["says no" in text or text.split("'")[1] for text in texts] == [True, "no0", True, "no1", True, "no2"]

    run(scenario)


def test_with_triton_grpc_error_the_first_error_ends_a_stream(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(STREAM_INFER, ("triton_grpc_error", "true"), end=False)
        for _ in range(5):
            client.body(stream, message(request()))
        await server.dispatched(1)
        server.execute()
        result = await client.result(stream)
        assert result.status == "13" and result.text == "model says no" and result.messages == []
        assert server.runtime.queued == 0

    run(scenario)


def test_with_triton_grpc_error_a_refused_request_is_answered_in_the_stream(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(STREAM_INFER, ("triton_grpc_error", "true"), end=False)
        client.body(stream, message(request(model=b"nope")))
        client.body(stream, message(request()), end=True)
        await server.dispatched(1)
        server.execute()
        result = await client.result(stream)
        assert [error_of(data) for data in result.messages] == ["Request for unknown model: 'nope' is not found"]
        assert result.status == "13" and result.text == "model says no"

    run(scenario)


def test_a_stream_that_sends_without_end_is_held_back(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(STREAM_INFER, end=False)
        many = limits.GRPC_STREAM_REQUESTS_MAX + 10
        for _ in range(many):
            client.body(stream, message(request()))
        await server.until(lambda: asked(server) == limits.GRPC_STREAM_REQUESTS_MAX)
        await server.settle()
        assert asked(server) == limits.GRPC_STREAM_REQUESTS_MAX
        for _ in range(many):
            await server.dispatched(1)
            server.execute()
        client.body(stream, message(request()), end=True)
        await server.dispatched(1)
        server.execute()
        result = await client.result(stream)
        assert result.status == "0" and len(result.messages) == many + 1

    run(scenario)


def test_requests_without_answers_open_the_window_again(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(STREAM_INFER, end=False)
        padded = message(request(id=b"i" * 3000))
        before = limits.HTTP2_STREAM_WINDOW_BYTES // len(padded)
        client.body(stream, padded * limits.GRPC_STREAM_REQUESTS_MAX)
        sent = limits.GRPC_STREAM_REQUESTS_MAX
        while sent < before - 10:
            client.body(stream, padded)
            sent += 1
        ended = 0
        while ended < sent:
            await server.dispatched(1)
            for told in server.link.execute_streams():
                server.link.respond(told, final=True)
                ended += 1
        grown = 0
        while grown < limits.HTTP2_STREAM_WINDOW_BYTES // 2:
            grown += (await client.frame(WindowUpdateFrame, stream)).window_increment
        client.body(stream, b"", end=True)
        result = await client.result(stream)
        assert result.status == "0" and result.messages == []

    run(scenario, decoupled=True)


def test_refused_messages_wait_for_their_turn_in_the_streams_memory(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(STREAM_INFER, end=False)
        client.body(stream, message(request()))
        await server.dispatched(1)
        client.body(stream, message(request(model=b"none")) * 20_000, end=True)
        [connection] = server.front._shared.connections
        await server.until(lambda: connection.unsent >= limits.GRPC_UNSENT_BYTES_MAX)
        await server.settle()
        assert connection.unsent < limits.GRPC_UNSENT_BYTES_MAX + 1000
        server.execute()
        result = await client.result(stream)
        assert result.status == "0" and len(result.messages) == 20_001
        assert connection.unsent == 0

    run(scenario)


def test_a_request_that_waits_for_the_end_of_its_call_has_a_time_limit(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(INFER, body=message(request()), end=False)
        await server.until(lambda: server.runtime.arena.used_blocks == 1)
        await server.settle()
        server.sweep(62)
        result = await client.result(stream)
        assert result.status == "4" and "did not end its side" in result.text

    run(scenario)


def test_a_refused_request_of_a_stream_has_its_own_id(run):
    async def scenario(server):
        client, other = await server.connect(), await server.connect()
        stream = client.call(STREAM_INFER, ("grpc-encoding", "gzip"), end=False)
        packed = message(gzip.compress(request(id=b"mine")), True)
        client.body(stream, packed)
        await server.dispatched(1)
        waits = other.call(INFER, body=message(request(id=b"theirs")), end=False)
        await server.until(lambda: server.runtime.arena.used_blocks == 2)
        client.body(stream, message(b"no gzip", True), end=True)
        server.execute()
        result = await client.result(stream)
        assert len(result.messages) == 2 and not any(b"theirs" in told for told in result.messages)
        other.body(waits, b"", end=True)
        await server.dispatched(1)
        server.execute()
        assert (await other.result(waits)).status == "13"

    run(scenario)


def test_draining_finishes_calls_and_takes_no_more(run):
    async def scenario(server):
        client = await server.connect()
        idle = await server.connect()
        stream = client.call(INFER, body=message(request()))
        asking = client.call(STREAM_INFER, body=message(request()), end=False)
        chat = client.call(CHAT, end=False)
        await server.dispatched(2)
        server.front.begin_drain()
        late = client.call(ECHO, body=message(b""))  # on its way when the server said goodbye
        assert (await idle.goaway()).error_code == 0
        assert (await client.result(chat)).status == "14"
        refused = await client.result(late)
        assert refused.status == "14" and "shutting down" in refused.text
        server.execute()
        server.execute()
        assert (await client.result(stream)).status == "13"
        ended = await client.result(asking)
        assert ended.status == "14" and len(ended.messages) == 1
        await client.goaway()
        assert server.front.closed.is_set()

    run(scenario)


def test_draining_lets_go_of_idle_clients_that_answer_nothing(run):
    async def scenario(server):
        client = await server.connect()
        client.acks = False
        await server.settle()
        server.front.begin_drain()
        assert not server.front.closed.is_set()
        await server.front.closed.wait()
        assert (await client.goaway()).last_stream_id == 0

    run(scenario)


def test_a_connection_of_age_takes_no_more_calls_and_ends(run):
    async def scenario(server):
        client = await server.connect()
        stream = client.call(INFER, body=message(request()))
        await server.dispatched(1)
        server.sweep(3)
        assert (await client.frame(GoAwayFrame)).last_stream_id == 2**31 - 1
        await client.frame(GoAwayFrame)
        server.execute()
        assert (await client.result(stream)).status == "13"
        await client.goaway()

    run(scenario, max_connection_age_ms=2000)


def test_the_grace_of_an_old_connection_ends_too(run):
    async def scenario(server):
        client = await server.connect()
        client.call(INFER, body=message(request()))
        await server.dispatched(1)
        server.sweep(10)
        await client.goaway()

    run(scenario, max_connection_age_ms=2000, max_connection_age_grace_ms=1000)


def test_a_client_that_does_not_answer_pings_is_closed(run):
    async def scenario(server):
        client = await server.connect()
        client.acks = False
        client.call(CHAT, end=False)
        await server.until(lambda: server.chats)
        server.sweep(8)
        await client.goaway()
        await server.gone()

    run(scenario, keepalive_time_ms=2000, keepalive_timeout_ms=3000)


def begun(nbytes):
    """The first bytes of a message of that length."""
    return b"\0" + struct.pack(">I", nbytes) + request()


async def promised(server, client, path, nbytes):
    blocks = server.runtime.arena.used_blocks
    stream = client.call(path, end=False)
    client.send(DataFrame(stream, begun(nbytes)))
    await server.until(lambda: server.runtime.arena.used_blocks != blocks)
    return stream


def test_messages_that_are_announced_and_do_not_come_give_way(run):
    async def scenario(server):
        room = server.runtime.arena.use_bytes_max
        client = await server.connect()
        unary = await promised(server, client, INFER, room // 2)
        stream = await promised(server, client, STREAM_INFER, room // 4)
        await promised(server, client, INFER, room // 4 - 100_000)
        for slow in (unary, stream):
            other = client.call(INFER, body=message(large_request()))
            await server.dispatched(1)
            server.execute()
            assert (await client.result(other)).status == "13"  # as the fake instance answers
            if slow == unary:
                assert (await client.result(slow)).status == "14"
                for _ in range(4):  # younger and smaller than the stream's, which therefore is the slowest at any pace
                    await promised(server, client, INFER, room // 8)
        error = (await client.frame(DataFrame, stream)).data[5:]
        assert "bytes of the message have come, too slowly" in error_of(error)

    run(scenario)


def test_one_connection_may_not_owe_too_much(run):
    async def scenario(server):
        client = await server.connect()
        for _ in range(2):
            await promised(server, client, INFER, (1 << 31) - 1)
        beyond = client.call(INFER, end=False)
        client.send(DataFrame(beyond, begun(1 << 24)))
        assert "is the limit" in (await client.result(beyond)).text
        await promised(server, await server.connect(), INFER, 1 << 24)

    run(scenario, room=limits.GRPC_PROMISED_BYTES_MAX * 2)
