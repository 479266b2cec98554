"""Answers over TLS to gRPC clients that read slowly or not at all."""

from __future__ import annotations

import ssl

import pytest
import trustme

from tests.front.grpc.helpers import ECHO, message
from tisfast import limits

TIMES = 16
DATA = bytes(range(251)) * ((1 << 20) // 251)


@pytest.fixture(scope="module")
def contexts():
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    return server, client


async def exhausted(server):
    """Until the server can write no more."""
    for _ in range(20):
        await server.settle()


def test_a_client_that_reads_nothing_is_closed(run, contexts):
    async def scenario(server):
        client = await server.connect(tls=contexts[1], limit=1 << 16)
        client.transport.pause_reading()
        client.call(ECHO, body=message(DATA))
        await exhausted(server)
        server.sweep(limits.GRPC_STALL_SECONDS_MAX)
        assert server.front.connections == 1
        await server.swept_away()

    run(scenario, times=TIMES, tls=contexts[0], keepalive_time_ms=10**9)


def test_a_slow_reader_gets_every_byte(run, contexts):
    async def scenario(server):
        client = await server.connect(tls=contexts[1], limit=1 << 16)
        got, stream = b"", client.call(ECHO, body=message(DATA))
        while len(got) < 5 + TIMES * len(DATA):
            for _ in range(32):
                frame = await client.read()
                if frame.type == 0:
                    got += frame.data
                    client.refill(stream, len(frame.data))
                if "END_STREAM" in frame.flags:
                    break
            await exhausted(server)
            server.sweep(1)
        assert got == message(DATA * TIMES)

    run(scenario, times=TIMES, tls=contexts[0])


def test_calls_side_by_side_get_every_byte(run, contexts):
    async def scenario(server):
        client = await server.connect(tls=contexts[1])
        streams = [client.call(ECHO, body=message(bytes([number]) * 65536)) for number in range(32)]
        for number, stream in enumerate(streams):
            assert (await client.result(stream)).messages == [bytes([number]) * 65536 * TIMES]

    run(scenario, times=TIMES, tls=contexts[0])
