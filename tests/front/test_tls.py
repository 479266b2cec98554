"""Answers over TLS to clients that read slowly or not at all: encrypted slice by slice, closed when nothing moves."""

from __future__ import annotations

import asyncio
import hashlib
import ssl

import pytest
import trustme

from tests.front.helpers import Server, serve
from tisfast import limits
from tisfast.operations.http_response import Response

BYTES = bytes(range(251)) * ((16 << 20) // 251)
BIG = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
BUFFER = 1 << 16
AHEAD_MAX = 2 << 20
"""More than the buffers between server and client hold, each of BUFFER or some times that: who has read so much has let
the server write."""


class Pattern(Server):
    """Answers with bytes of which each place can be told."""

    def handle(self, head, body):
        return Response(200, "application/octet-stream", BYTES, ())


@pytest.fixture(scope="module")
def contexts():
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.fixture
def run(contexts):
    return lambda scenario: serve(lambda server: scenario(server, contexts[1]), Pattern, tls=contexts[0])


async def exhausted(server):
    """Until the server can write no more: the buffers between it and a client that does not read are full."""
    await asyncio.wait([asyncio.ensure_future(server.settle()) for _ in range(20)])


@pytest.mark.parametrize("request_bytes", [BIG, LAST])
def test_a_client_that_reads_nothing_is_closed(run, request_bytes):
    async def scenario(server, tls):
        client = await server.connect(receive_buffer=4096, tls=tls)
        client.stop_reading()
        client.write(request_bytes)
        await exhausted(server)
        server.sweep(limits.HTTP_SEND_IDLE_SECONDS_MAX)
        assert server.front.connections == 1
        await server.swept_away()

    run(scenario)


@pytest.mark.parametrize("request_bytes", [BIG, LAST, BIG * 2, BIG + LAST])
def test_a_slow_reader_gets_every_byte(run, request_bytes):
    async def scenario(server, tls):
        server.keep_send_buffers_at(BUFFER)
        client = await server.connect(receive_buffer=BUFFER, tls=tls, limit=BUFFER)
        client.write(request_bytes)
        for _ in range(request_bytes.count(b"GET")):
            _, headers = await client.read_head()
            got = hashlib.sha256()
            left = int(headers["content-length"])
            while left:
                portion = await client.read_bytes(min(left, AHEAD_MAX))
                got.update(portion)
                left -= len(portion)
                server.sweep(limits.HTTP_SEND_IDLE_SECONDS_MAX - 1)
            assert got.digest() == hashlib.sha256(BYTES).digest()
        if b"close" in request_bytes:
            assert await client.at_end()

    run(scenario)


def test_an_interim_answer_stays_behind_the_answer_before_it(run):
    async def scenario(server, tls):
        client = await server.connect(receive_buffer=1 << 16, tls=tls)
        client.stop_reading()
        client.write(BIG + b"POST /x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        await exhausted(server)
        client.start_reading()
        assert (await client.read()).body == BYTES
        assert (await client.read_head())[0] == 100
        client.write(b"x")
        assert (await client.read()).body == BYTES

    run(scenario)
