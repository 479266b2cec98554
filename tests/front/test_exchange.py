"""Generate, and streams of events, over a real socket; the model is decoupled and responds when told to."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from tests.front.helpers import serve
from tisfast import limits
from tisfast.config.settings import HttpSettings
from tisfast.operations.header_policy import http_policy

INFER = json.dumps({"inputs": [{"name": "I", "shape": [1], "datatype": "FP32", "data": [1]}]}).encode()
EVENT = b'data: {"error":"model says no"}\n\n'
NOT_ONE = "generate expects model to produce exactly 1 response"


def call(verb, body=b'{"I":1}', headers=b"", version=b"1.1"):
    return b"POST /v2/models/m/%b HTTP/%b\r\n%bContent-Length: %d\r\n\r\n%b" % (verb, version, headers, len(body), body)


STREAM = call(b"generate_stream")
ACCEPT = b"Accept: text/event-stream\r\n"


@pytest.fixture
def run():
    return partial(serve, decoupled=True)


async def started(server, data):
    """A client that has sent data, and its request, which the model is executing."""
    client = await server.connect()
    client.write(data)
    await server.dispatched(1)
    return client, server.link.execute_streams()[0]


@pytest.mark.parametrize("data", [STREAM, call(b"infer", INFER, ACCEPT)])
def test_each_response_is_an_event_as_it_comes(run, data):
    async def scenario(server):
        client, request = await started(server, data)
        server.link.respond(request, status=2)
        status, headers = await client.read_head()
        assert (status, headers["content-type"]) == (500, "text/event-stream; charset=utf-8")
        assert headers["transfer-encoding"] == "chunked"
        assert await client.read_chunk() == EVENT
        server.link.respond(request, status=4)
        assert await client.read_chunk() == EVENT
        server.link.respond(request, final=True)
        assert await client.read_chunk() == b""

    run(scenario)


def test_a_stream_without_responses_is_an_empty_success(run):
    async def scenario(server):
        client, request = await started(server, STREAM)
        server.link.respond(request, final=True)
        assert (await client.read_head())[0] == 200
        assert await client.read_chunk() == b""

    run(scenario)


def test_the_connection_serves_on_after_a_stream(run):
    async def scenario(server):
        client, request = await started(server, STREAM + b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        server.link.respond(request, final=True)
        await client.read_head()
        assert await client.read_chunk() == b""
        assert (await client.read()).status == 200

    run(scenario)


def test_answers_to_pipelined_requests_wait_for_the_end_of_the_stream(run):
    async def scenario(server):
        client, request = await started(server, STREAM + call(b"generate", b"x"))
        server.link.respond(request, status=2)
        await client.read_head()
        assert await client.read_chunk() == EVENT
        server.link.respond(request, final=True)
        assert await client.read_chunk() == b""
        assert (await client.read()).status == 500

    run(scenario)


def test_a_client_without_chunks_reads_to_the_end(run):
    async def scenario(server):
        client, request = await started(server, call(b"generate_stream", version=b"1.0"))
        server.link.respond(request, status=2)
        server.link.respond(request, final=True)
        _, headers = await client.read_head()
        assert "transfer-encoding" not in headers
        assert await client.read_rest() == EVENT

    run(scenario)


def test_a_client_that_leaves_cancels_its_stream(run):
    async def scenario(server):
        client, request = await started(server, STREAM)
        server.link.respond(request, status=2)
        await client.read_head()
        client.close()
        await server.until(lambda: request.cancelled)
        server.link.respond(request, final=True)

    run(scenario)


def test_a_request_that_is_none_is_refused_with_a_whole_answer(run):
    async def scenario(server):
        client = await server.connect()
        client.write(
            call(b"generate_stream", b'{"I":"x"}') + call(b"generate_stream", headers=b"Content-Encoding: br\r\n")
        )
        assert (await client.read()).status == 500
        answer = await client.read()
        assert answer.status == 400
        assert b"only 'identity' is supported" in answer.body

    run(scenario)


def test_infer_of_a_decoupled_model_needs_events(run):
    async def scenario(server):
        client = await server.connect()
        client.write(call(b"infer", INFER) + call(b"infer", INFER, b"Accept: */*\r\n"))
        for _ in range(2):
            answer = await client.read()
            assert answer.status == 501
            assert b"HTTP end point doesn't support models with decoupled transaction policy" in answer.body

    run(scenario)


def test_events_of_binary_outputs_are_refused(run):
    binary = INFER[:-1] + b',"parameters":{"binary_data_output":true}}'

    async def scenario(server):
        client = await server.connect()
        client.write(call(b"infer", binary, ACCEPT))
        answer = await client.read()
        assert answer.status == 400
        assert b"events (Accept: text/event-stream) carry JSON" in answer.body

    run(scenario)


@pytest.mark.parametrize("responses", [0, 2])
def test_generate_wants_one_response(run, responses):
    async def scenario(server):
        client, request = await started(server, call(b"generate"))
        for _ in range(responses):
            server.link.respond(request)
        if not responses:
            server.link.respond(request, final=True)
        answer = await client.read()
        assert answer.status == 500
        assert NOT_ONE in json.loads(answer.body)["error"]
        if responses:
            assert request.cancelled  # nobody reads what may still come
            server.link.respond(request, final=True)

    run(scenario)


def test_generate_gives_the_error_of_the_response(run):
    async def scenario(server):
        client, request = await started(server, call(b"generate"))
        server.link.respond(request, status=3, final=True)
        answer = await client.read()
        assert (answer.status, json.loads(answer.body)) == (404, {"error": "model says no"})

    run(scenario)


def test_a_client_that_does_not_read_its_stream_is_given_up(run):
    async def scenario(server):
        client = await server.connect(receive_buffer=4096)
        client.stop_reading()
        client.write(STREAM)
        await server.dispatched(1)
        request = server.link.execute_streams()[0]
        for n in range(200_000):
            server.link.respond(request, status=2)
            if n % 1000 == 0:
                await asyncio.sleep(0)
            if server.front.connections == 0 or request.cancelled:
                break
        assert n >= limits.HTTP_STREAM_WAITING_MAX
        await server.until(lambda: request.cancelled)
        server.link.respond(request, final=True)
        client.start_reading()

    run(scenario)


def test_a_restricted_call_is_refused_before_its_body_and_the_connection_goes_on(run):
    policy = http_policy(HttpSettings(restricted=("inference:key=v",)))

    async def scenario(server):
        client = await server.connect()
        client.write(call(b"infer", INFER) + call(b"generate") + b"GET /v2/health/live HTTP/1.1\r\n\r\n")
        for _ in range(2):
            answer = await client.read()
            assert (answer.status, json.loads(answer.body)["error"]) == (
                403,
                "This API is restricted, expecting header 'key'",
            )
        assert (await client.read()).status == 200

    run(scenario, policy=policy)


def test_a_refused_call_whose_body_may_not_come_ends_the_connection(run):
    policy = http_policy(HttpSettings(restricted=("inference:key=v",)))

    async def scenario(server):
        client = await server.connect()
        client.write(b"POST /v2/models/m/infer HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        answer = await client.read()
        assert (answer.status, answer.headers["connection"]) == (403, "close")

    run(scenario, policy=policy)
