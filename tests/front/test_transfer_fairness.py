"""Large transfers take turns while small requests come: what each moves in one turn of the loop."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest

from tests.front.body_helpers import infer
from tests.front.helpers import serve
from tisfast import tuning

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
BIG = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
BODY_BYTES = 8 << 20


class Watched(asyncio.BufferedProtocol):
    """A connection, and how much it received in each turn."""

    def __init__(self, inner, turns):
        self._inner, self._turns, self.received = inner, turns, Counter()

    def buffer_updated(self, n):
        self.received[self._turns.count] += n
        self._inner.buffer_updated(n)

    def __getattribute__(self, name):
        if name.startswith("_") or name in {"received", "buffer_updated"}:
            return super().__getattribute__(name)
        return getattr(self._inner, name)


class Turns:
    """Counts the loop's turns, and calls a function in each."""

    def __init__(self, loop):
        self.count, self._loop, self.each = 0, loop, lambda: None
        loop.call_soon(self._step)

    def _step(self):
        self.count += 1
        self.each()
        self._loop.call_soon(self._step)


async def watched(server):
    """A listener whose connections are watched: its port, the turns and the connections."""
    turns, made = Turns(server.loop), []

    def make():
        made.append(Watched(server.front.protocol_factory(), turns))
        return made[-1]

    listener = await server.loop.create_server(make, "127.0.0.1", 0)
    return listener, turns, made


async def connect(server, listener):
    client = socket.socket()
    client.setblocking(False)
    await server.loop.sock_connect(client, listener.sockets[0].getsockname())
    return client


async def small_request(server):
    client = await server.connect()
    client.write(LIVE)
    assert (await client.read()).status == 200


@pytest.mark.parametrize("shared", [False, True])
def test_a_large_body_takes_turns_while_others_ask(shared):
    async def scenario(server):
        listener, _, made = await watched(server)
        with await connect(server, listener) as client:
            if shared:
                await small_request(server)
            request = infer(BODY_BYTES)
            await server.loop.sock_sendall(client, request)
            await server.dispatched(1)
            received, left = made[0].received, len(request)
            # The head comes in the same turn, through a buffer of its own.
            several = tuning.TURN_BYTES + tuning.RECEIVE_BUFFER_BYTES
            assert received.total() == left
            if shared:
                for turn in sorted(received):  # the end of a body is taken whole, as much of it as has come
                    assert received[turn] <= (several if left > tuning.TURN_WHOLE_BYTES else left)
                    left -= received[turn]
            else:
                assert max(received.values()) > several
            server.execute_all()
        listener.close()

    serve(scenario)


@pytest.mark.parametrize("shared", [False, True])
def test_a_large_answer_takes_turns_while_others_ask(shared):
    async def scenario(server):
        server.big = BODY_BYTES
        listener, turns, _ = await watched(server)
        taken = []
        with await connect(server, listener) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BODY_BYTES)

            def take():
                try:
                    taken.append(len(client.recv(BODY_BYTES)))
                except BlockingIOError:
                    return

            if shared:
                await small_request(server)
            turns.each = take
            await server.loop.sock_sendall(client, BIG)
            await server.until(lambda: sum(taken) > BODY_BYTES)
            turns.each = lambda: None
        whole = tuning.TURN_WHOLE_BYTES if shared else BODY_BYTES
        assert max(taken) <= whole + tuning.TURN_BYTES
        if shared:
            assert sum(n <= 2 * tuning.TURN_BYTES for n in taken) >= (BODY_BYTES - whole) // (2 * tuning.TURN_BYTES)
        else:
            assert len(taken) < BODY_BYTES // tuning.TURN_BYTES
        listener.close()

    serve(scenario)
