"""Which congestion control a connection is born with, and has in the end."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tisfast.front.socket_writer import SocketWriter

from tests.loops import fresh_loop
from tisfast.config.settings import ListenSettings
from tisfast.listeners import Listener

MACHINES = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()


def control_of(connection) -> str:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


async def accepted(client_address: str, unpaced_local: bool = True) -> tuple[str, str]:
    """Of a connection from there: as it was born, and as a front's sender leaves it."""
    loop = asyncio.get_running_loop()
    made = loop.create_future()

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport):
            connection = transport.get_extra_info("socket")
            born = control_of(connection)
            SocketWriter(transport, asyncio.get_running_loop())
            made.set_result((born, control_of(connection)))
            transport.abort()

    listener = Listener(ListenSettings("HTTP", "http", True, "127.0.0.1", 0, False, unpaced_local))
    await listener.open(Protocol)
    try:
        with socket.create_connection(("127.0.0.1", listener.port), 5, (client_address, 0)):
            return await made
    finally:
        listener.close()


@pytest.mark.parametrize(("client", "expected"), [("127.0.0.1", "reno"), ("127.0.0.2", MACHINES)])
def test_a_client_at_our_own_address_is_never_paced_and_others_as_the_machine_s_owner_chose(client, expected):
    """Born unpaced: the kernel goes on pacing what was once bbr's."""
    with fresh_loop() as loop:
        assert loop.run_until_complete(asyncio.wait_for(accepted(client), 60)) == ("reno", expected)


@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2"])
def test_the_machine_s_choice_is_everybody_s_where_the_operator_says_so(client):
    with fresh_loop() as loop:
        found = loop.run_until_complete(asyncio.wait_for(accepted(client, unpaced_local=False), 60))
    assert found == (MACHINES, MACHINES)


def test_what_is_set_aside_is_told():
    for unpaced_local, told in ((True, MACHINES if MACHINES != "reno" else ""), (False, "")):
        listener = Listener(ListenSettings("HTTP", "http", True, "127.0.0.1", 0, False, unpaced_local))
        listener.close()
        assert listener.set_aside == told
