"""What a connection's socket is told."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tisfast.front.sender import Sender

from tests.loops import fresh_loop

ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
OPERATORS = next((name for name in ALLOWED if name != "reno"), None)


def control_of(connection: socket.socket) -> str:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


async def accepted(client_address: str) -> str:
    """The congestion control of a connection from there, of a listener that has the operator's."""
    loop = asyncio.get_running_loop()
    made = loop.create_future()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            Sender(transport)
            made.set_result(transport)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, OPERATORS.encode())
        server = await loop.create_server(Protocol, sock=listener)
        with socket.create_connection(listener.getsockname(), 5, (client_address, 0)):
            transport = await made
            try:
                with socket.socket(fileno=socket.dup(transport.get_extra_info("socket").fileno())) as connection:
                    return control_of(connection)
            finally:
                transport.abort()
                server.close()


@pytest.mark.skipif(OPERATORS is None, reason="this machine allows reno only")
@pytest.mark.parametrize(("client", "expected"), [("127.0.0.1", "reno"), ("127.0.0.2", OPERATORS)])
def test_a_client_at_our_own_address_is_not_paced_and_no_other(client, expected):
    with fresh_loop() as loop:
        assert loop.run_until_complete(asyncio.wait_for(accepted(client), 10)) == expected
