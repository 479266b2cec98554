"""Large bodies over HTTP: the kernel wakes the loop for them less often than bytes come."""

from __future__ import annotations

import pytest

from tests.front.body_helpers import infer
from tests.front.helpers import serve
from tisfast import limits, tuning

WAKE = tuning.BODY_WAKE_BYTES
FAR = tuning.BODY_NEAR_BYTES + WAKE
SMALL_BYTES = 100
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"


async def answered(server, client):
    await server.dispatched(1)
    server.execute_all()
    assert (await client.read()).status == 500  # what the fake instance answers
    client.write(LIVE)  # a few bytes are waited for as ever
    assert (await client.read()).status == 200


@pytest.mark.parametrize("piece_bytes", [1 << 16, WAKE - 1, 64 << 20])
@pytest.mark.parametrize("nbytes", [FAR - 4, FAR, FAR + 4, FAR + WAKE, 8 << 20])
def test_a_body_arrives_whole_and_what_follows_it_too(nbytes, piece_bytes):
    async def scenario(server):
        client = await server.connect()
        data = infer(nbytes)
        for _ in range(3):
            for at in range(0, len(data), piece_bytes):
                client.write(data[at : at + piece_bytes])
                await server.settle()
            await answered(server, client)

    serve(scenario)


def test_a_client_that_sends_little_by_little_is_seen_to_send():
    async def scenario(server):
        client = await server.connect()
        data = infer(8 << 20)
        client.write(data[:WAKE])
        await server.settle()
        at = WAKE
        for _ in range(limits.HTTP_BODY_IDLE_SECONDS_MAX):
            client.write(data[at : at + SMALL_BYTES])
            at += SMALL_BYTES
            await server.settle()
            server.sweep(2)
            await server.settle()
        client.write(data[at:])
        await answered(server, client)

    serve(scenario)


def test_a_client_that_sends_nothing_more_is_closed():
    async def scenario(server):
        client = await server.connect()
        client.write(infer(8 << 20)[: 3 * WAKE])
        await server.settle()
        server.sweep(limits.HTTP_BODY_IDLE_SECONDS_MAX)
        assert server.front.connections == 1
        await server.settle()
        for _ in range(limits.HTTP_BODY_IDLE_SECONDS_MAX + 2):  # what the kernel had collected was a sign of life
            server.sweep(1)
            await server.settle()
        assert await client.at_end()

    serve(scenario)


def test_a_client_that_leaves_in_the_middle_is_noticed():
    async def scenario(server):
        client = await server.connect()
        client.write(infer(8 << 20)[: WAKE // 2])
        await server.settle()
        client.close()
        await server.gone()

    serve(scenario)
