"""One connection over a real socket and a real uvloop; instances are fake and answer when told to."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import struct
import sys

import pytest

from tests.front.helpers import ADD, BODY, infer, serve
from tisfast import limits, tuning

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"

READER = """
import socket, sys
port, size = map(int, sys.argv[1:])
with socket.create_connection(("127.0.0.1", port)) as client, client.makefile("rb") as answers:
    for _ in range(300):
        client.sendall(b"GET /big HTTP/1.1\\r\\n\\r\\n")
        while answers.readline() != b"\\r\\n":
            pass
        assert len(answers.read(size)) == size
"""


def chunked(body, size):
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    coded = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts)
    return ADD + b"Transfer-Encoding: chunked\r\n\r\n" + coded + b"0\r\n\r\n"


@pytest.fixture
def run():
    return serve


def test_keep_alive_serves_many_requests_on_one_connection(run):
    async def scenario(server):
        client = await server.connect()
        for _ in range(3):
            client.write(LIVE)
            assert (await client.read()).status == 200

    run(scenario)


@pytest.mark.parametrize("cut", range(1, len(infer()), 7))
def test_a_request_may_arrive_in_any_two_pieces(run, cut):
    async def scenario(server):
        client = await server.connect()
        client.write(infer()[:cut])
        await server.settle()
        client.write(infer()[cut:])
        await server.dispatched(1)
        server.execute()
        assert (await client.read()).status == 500

    run(scenario)


def test_a_request_may_arrive_byte_by_byte(run):
    async def scenario(server):
        client = await server.connect()
        for byte in infer():
            client.write(bytes([byte]))
            await server.settle()
        await server.dispatched(1)
        server.execute()
        assert b"model says no" in (await client.read()).body

    run(scenario)


def test_pipelined_requests_are_answered_in_order(run):
    async def scenario(server):
        client = await server.connect()
        client.write(infer() + LIVE + infer())
        await server.dispatched(2)
        server.execute()
        server.execute()
        assert [(await client.read()).status for _ in range(3)] == [500, 200, 500]

    run(scenario)


def test_a_pipeline_beyond_its_bound_waits_and_is_served(run):
    async def scenario(server):
        client = await server.connect()
        client.write(infer() + LIVE * 200)
        await server.dispatched(1)
        await server.settle()
        server.execute()
        statuses = [(await client.read()).status for _ in range(201)]
        assert statuses == [500] + [200] * 200

    run(scenario)


LOAD = b"POST /v2/repository/models/x/load HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


class Loads:
    """Model control whose loads end when they are told to."""

    explicit = True

    def __init__(self):
        self.coming = []

    async def load(self, _order):
        self.coming.append(asyncio.get_running_loop().create_future())
        await self.coming[-1]


@pytest.mark.parametrize("together", [True, False])
def test_a_request_behind_one_that_changes_the_server_begins_when_that_is_done(run, together):
    loads = Loads()

    async def scenario(server):
        client = await server.connect()
        for text in [LOAD + infer() + LOAD + LIVE] if together else [LOAD, infer() + LOAD, LIVE]:
            client.write(text)
            await server.settle()
        await server.until(lambda: loads.coming)
        assert (server.link.dispatched, server.routed) == ([], 1)
        loads.coming[0].set_result(None)
        await server.dispatched(1)
        await server.until(lambda: len(loads.coming) == 2)
        await server.settle()
        assert server.routed == 2  # LIVE waits, and the inference before it holds up nothing
        loads.coming[1].set_result(None)
        await server.until(lambda: server.routed == 3)
        server.execute()
        assert [(await client.read()).status for _ in range(4)] == [200, 500, 200, 200]

    run(scenario, control=loads)


def test_a_client_that_leaves_while_its_request_is_done_is_noticed(run):
    loads = Loads()

    async def scenario(server):
        client = await server.connect()
        client.write(LOAD)
        await server.until(lambda: loads.coming)
        client.close()
        await server.gone()
        loads.coming[0].set_result(None)
        await server.settle()

    run(scenario, control=loads)


def test_a_head_that_waits_for_the_server_is_not_late(run):
    loads = Loads()

    async def scenario(server):
        client = await server.connect()
        client.write(LOAD + LIVE[:10])
        await server.until(lambda: loads.coming)
        server.sweep(limits.HTTP_HEAD_SECONDS_MAX + 2)
        loads.coming[0].set_result(None)
        assert (await client.read()).status == 200
        server.sweep(1)
        client.write(LIVE[10:])
        assert (await client.read()).status == 200

    run(scenario, control=loads)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunked_uploads(run, size):
    async def scenario(server):
        client = await server.connect()
        client.write(chunked(BODY, size) + LIVE)
        await server.dispatched(1)
        server.execute()
        assert (await client.read()).status == 500
        assert (await client.read()).status == 200

    run(scenario)


@pytest.mark.parametrize("bad", [ADD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"NOT HTTP\r\n\r\n"])
def test_nothing_after_a_refusal_is_a_request_while_earlier_answers_are_due(run, bad):
    async def scenario(server):
        client = await server.connect()
        client.write(infer() + bad)
        await server.dispatched(1)
        await server.settle()
        client.write(LIVE * 3)
        await server.settle()
        server.execute()
        assert [(await client.read()).status for _ in range(2)] == [500, 400]
        assert await client.at_end()

    run(scenario)


def test_compressed_bodies(run):
    async def scenario(server):
        client = await server.connect()
        client.write(infer(gzip.compress(BODY), b"Content-Encoding: gzip\r\n"))
        await server.dispatched(1)
        server.execute()
        assert (await client.read()).status == 500

    run(scenario)


def test_a_compressed_bomb_stops_at_the_limit(run):
    async def scenario(server):
        client = await server.connect()
        client.write(infer(gzip.compress(bytes(32 << 20)), b"Content-Encoding: gzip\r\n"))
        answer = await client.read()
        assert answer.status == 400
        assert b"--http-max-input-size" in answer.body

    run(scenario, max_input_bytes=1 << 20)


def test_a_large_body_goes_straight_into_the_arena(run):
    async def scenario(server):
        tensor = struct.pack("<4f", 1, 2, 3, 4)
        pad = b" " * (3 << 20)
        head = json.dumps(
            {"inputs": [{"name": "I", "shape": [4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}]}
        ).encode()
        body = head + pad + tensor
        client = await server.connect()
        client.write(infer(body, b"Inference-Header-Content-Length: %d\r\n" % (len(head) + len(pad))))
        await server.dispatched(1)
        assert server.runtime.arena.used_bytes >= len(body)
        server.execute()
        assert (await client.read()).status == 500

    run(scenario)


@pytest.mark.parametrize("filling", [0, 3000, 4000, 4096, 5000, 50_000])
def test_what_follows_a_large_body_is_read_as_ever(run, filling):
    """Behind a large body the next head is awaited in a smaller buffer, which this one may fill or outgrow."""

    async def scenario(server):
        client = await server.connect()
        large = infer(BODY + b" " * 3 * tuning.RECEIVE_BUFFER_BYTES)
        small = infer(headers=b"X-Filling: %b\r\n" % (b"f" * filling))
        for request in (large, small + LIVE, large, large, chunked(BODY, 7) + small):
            client.write(request)
        for status in (500, 500, 200, 500, 500, 500, 500):
            if status == 500:
                await server.dispatched(1)
                server.execute()
            assert (await client.read()).status == status

    run(scenario)


def test_who_watches_for_answers_is_told_of_a_body_that_is_nearly_there(run):
    async def scenario(server):
        near = tuning.BODY_NEAR_BYTES
        data = infer(b" " * (3 * near) + BODY)
        client = await server.connect()
        client.write(data[:near])
        await server.until(lambda: server.runtime.arena.used_bytes)
        await server.settle()
        assert server.link.expected == 0
        client.write(data[near:-4096])
        await server.until(lambda: server.link.expected)
        assert not server.link.dispatched
        client.write(data[-4096:])
        await server.dispatched(1)
        server.execute()

    run(scenario)


def test_an_unknown_model_is_refused_and_its_body_skipped(run):
    async def scenario(server):
        client = await server.connect()
        client.write(b"POST /v2/models/nope/infer HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n" + bytes(9000000) + LIVE)
        answer = await client.read()
        assert answer.status == 404
        assert b"Request for unknown model: 'nope' is not found" in answer.body
        assert (await client.read()).status == 200

    run(scenario)


def test_a_body_beyond_the_arena_is_unavailable_with_the_bound(run):
    async def scenario(server):
        client = await server.connect()
        client.write(ADD + b"Content-Length: %d\r\n\r\n" % (1 << 36))
        answer = await client.read()
        assert answer.status == 503
        assert b"no room for" in answer.body

    run(scenario)


@pytest.mark.parametrize(
    "head",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        ADD + b"Content-Length: -5\r\n\r\n",
        ADD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        ADD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        ADD + b"Content-Length: 99999999999999999999999\r\n\r\n",
        ADD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ADD + b"X-Long: " + b"y" * 70000 + b"\r\n\r\n",
    ],
)
def test_what_is_not_http_is_answered_and_the_connection_closed(run, head):
    async def scenario(server):
        client = await server.connect()
        client.write(head)
        answer = await client.read()
        assert 400 <= answer.status < 500
        assert answer.headers["connection"] == "close"
        assert await client.at_end()

    run(scenario)


def test_the_answer_to_100_mb_of_headers_is_not_overtaken_by_a_reset(run):
    async def scenario(server):
        client = await server.connect()
        client.write(b"GET / HTTP/1.1\r\n" + (b"X-Header: " + b"z" * 65500 + b"\r\n") * 1600)
        answer = await client.read()
        assert answer.status == 400
        assert b"head exceeds 65536 bytes" in answer.body
        assert await client.at_end()

    run(scenario)


def test_who_goes_on_after_a_refusal_is_cut_off(run):
    async def scenario(server):
        client = await server.connect()
        client.write(b"GARBAGE\r\n\r\n")
        assert (await client.read()).status == 400
        server.sweep(3)
        assert server.front.connections == 1
        server.sweep(10)
        await server.gone()

    run(scenario)


def test_who_never_reads_its_answer_is_cut_off(run):
    async def scenario(server):
        client = await server.connect(receive_buffer=4096)
        client.stop_reading()
        client.write(b"GET /big HTTP/1.1\r\nConnection: close\r\n\r\n")
        await server.until(lambda: server.routed)
        await server.settle()
        server.sweep(50)
        assert server.front.connections == 1
        server.sweep(20)
        await server.gone()

    run(scenario)


def test_an_idle_connection_keeps_no_block(run):
    async def scenario(server):
        client = await server.connect()
        client.write(infer()[:-5])
        await server.settle()
        client.write(infer()[-5:])
        await server.dispatched(1)
        server.execute()
        await client.read()
        await server.settle()
        assert server.front.connections == 1
        assert server.runtime.arena.used_blocks == 0

    run(scenario)


def test_expect_continue_behind_another_request(run):
    async def scenario(server):
        client = await server.connect()
        client.write(infer() + infer(headers=b"Expect: 100-continue\r\n")[: -len(BODY)])
        await server.dispatched(1)
        await server.settle()
        server.execute()
        assert (await client.read()).status == 500
        assert (await client.read()).status == 100
        client.write(BODY)
        await server.dispatched(1)
        server.execute()
        assert (await client.read()).status == 500

    run(scenario)


@pytest.mark.parametrize("upto", [0, 10, len(ADD), len(infer()) - 1, len(infer())])
def test_a_client_may_leave_at_each_step(run, upto):
    async def scenario(server):
        client = await server.connect()
        client.write(infer()[:upto])
        await server.settle()
        client.close()
        await server.gone()
        server.execute_all()

    run(scenario)


def test_leaving_cancels_what_is_queued(run):
    async def scenario(server):
        clients = [await server.connect() for _ in range(4)]
        for client in clients:
            client.write(infer())
        await server.dispatched(2)  # one runs, one is prefetched: the others wait in the queue
        await server.until(lambda: server.runtime.queued == 2)
        for client in clients:
            client.close()
        await server.gone()
        assert server.runtime.queued == 0
        assert server.runtime.stats.canceled == 3  # what was handed ahead is taken back
        server.execute_all()

    run(scenario)


def test_expect_continue(run):
    async def scenario(server):
        client = await server.connect()
        client.write(ADD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert (await client.read()).status == 100
        client.write(BODY)
        await server.dispatched(1)
        server.execute()
        assert (await client.read()).status == 500

    run(scenario)


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"GET /v2/health/live HTTP/1.0\r\n\r\n", False),
        (b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"GET /v2/health/live HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"\r\n\r\nGET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n", True),
    ],
)
def test_who_keeps_the_connection(run, head, kept):
    async def scenario(server):
        client = await server.connect()
        client.write(head)
        assert (await client.read()).status == 200
        if kept:
            client.write(LIVE)
            assert (await client.read()).status == 200
        else:
            assert await client.at_end()

    run(scenario)


def test_a_slow_reader_holds_back_only_itself(run):
    async def scenario(server):
        slow = await server.connect(receive_buffer=4096)
        slow.stop_reading()
        slow.write(b"GET /big HTTP/1.1\r\n\r\n" * 40)
        fast = await server.connect()
        fast.write(LIVE)
        assert (await fast.read()).status == 200
        assert server.routed < 40  # the rest is not even parsed: back-pressure
        slow.start_reading()
        assert [len((await slow.read()).body) for _ in range(40)] == [server.big] * 40

    run(scenario)


def test_large_answers_to_a_reader_at_its_own_pace(run):
    """The transport's own try often takes what the first write left, and then says nothing: reading must go on."""

    async def scenario(server):
        server.big = 9_000_000
        reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, str(server.port), str(server.big))
        assert await reader.wait() == 0
        await server.gone()

    run(scenario)


def test_draining_closes_idle_connections_and_others_after_their_answer(run):
    async def scenario(server):
        idle, busy = await server.connect(), await server.connect()
        busy.write(infer())
        await server.dispatched(1)
        server.front.begin_drain()
        assert await idle.at_end()
        assert not server.front.closed.is_set()
        server.execute()
        answer = await busy.read()
        assert answer.headers["connection"] == "close"
        assert await busy.at_end()
        await server.front.closed.wait()

    run(scenario)


def test_stalled_clients_are_swept_out(run):
    async def scenario(server):
        head, body = await server.connect(), await server.connect()
        head.write(b"GET /v2")
        body.write(infer()[:-1])
        await server.settle()
        server.sweep(62)
        assert (await head.read()).status == 408
        assert await head.at_end()
        assert await body.at_end()

    run(scenario)


def test_reset_in_the_middle_of_an_answer_frees_everything(run):
    async def scenario(server):
        client = await server.connect(receive_buffer=4096)
        client.stop_reading()
        client.write(b"GET /big HTTP/1.1\r\n\r\n" * 5)
        await server.settle()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await server.gone()

    run(scenario)
