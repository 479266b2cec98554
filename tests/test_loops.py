"""The loop that tests run on."""

from __future__ import annotations

import asyncio

import pytest

from tests.loops import fresh_loop


async def leave_open() -> None:
    """A listener, and both ends of a connection."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
    await asyncio.sleep(0)


def test_a_test_that_fails_with_its_connections_open_is_heard_of():
    with pytest.raises(ZeroDivisionError), fresh_loop() as loop:
        loop.run_until_complete(leave_open())
        raise ZeroDivisionError


def test_one_that_leaves_them_open_fails():
    with pytest.raises(AssertionError, match="TCPTransport"), fresh_loop() as loop:
        loop.run_until_complete(leave_open())
