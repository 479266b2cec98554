"""Bodies that are announced and do not come: they give way when others find no room."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.front.helpers import ADD, infer, serve

ROOM = 1 << 29  # of the arena


def promise(nbytes, sent=b"{"):
    return ADD + b"Content-Length: %d\r\n\r\n" % nbytes + sent


async def promised(server, nbytes, sent=b"{"):
    client = await server.connect()
    blocks = server.runtime.arena.used_blocks
    client.write(promise(nbytes, sent))
    await server.until(lambda: server.runtime.arena.used_blocks != blocks)
    return client


def test_promises_that_fill_the_arena_refuse_nobody():
    async def scenario(server):
        held = [await promised(server, nbytes) for nbytes in (ROOM // 2, ROOM // 4, ROOM // 4 - (1 << 20))]
        client = await server.connect()
        for _ in range(3):
            client.write(infer(b" " * (1 << 21) + infer().split(b"\r\n\r\n", 1)[1]))
            await server.dispatched(1)
            server.execute()
            assert (await client.read()).status == 500  # as the fake instance answers
            held.append(await promised(server, ROOM // 4))
        answers = [await slow.read() for slow in held[:2]]
        assert [answer.status for answer in answers] == [503, 503]
        assert b"1 of %d bytes of the request have come, too slowly" % (ROOM // 2) in answers[0].body

    serve(scenario)


NEARLY_THERE = """
import asyncio, sys
sys.path[:0] = {path}
from tisfast import limits
limits.PROMISE_SECONDS_MAX = 0
from tests.front.helpers import infer, serve
from tests.front.test_promised_blocks import ROOM, promised

async def scenario(server):
    nbytes = ROOM // 2 - (1 << 16)
    slow = [await promised(server, nbytes) for _ in range(2)]
    for client in slow:
        client.write(bytes(nbytes - 101))  # 100 are missing, and never come
    await server.until(lambda: server.runtime.arena.resident_bytes > 2 * (nbytes - 200))
    client = await server.connect()
    client.write(infer(b" " * (1 << 21) + infer().split(b"\\r\\n\\r\\n", 1)[1]))
    await server.dispatched(1)

serve(scenario)
"""


def test_a_body_that_stands_still_gives_way_when_nearly_all_of_it_has_come():
    """In a process of its own, in which a minute is no time."""
    program = NEARLY_THERE.format(path=[entry for entry in sys.path if entry])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_bodies_that_stand_still_give_way_together_to_a_larger_one():
    async def scenario(server):
        slow = [await promised(server, ROOM // 9) for _ in range(8)]
        larger = await promised(server, ROOM // 2, b"{" * 100_000)
        left = server.runtime.arena.used_blocks - 1
        assert 0 < left < 6 and not larger.gone
        assert (await slow[0].read()).status == 503  # the one that has stood still for longest

    serve(scenario)


def test_who_asks_for_more_than_a_body_has_does_not_take_its_place():
    async def scenario(server):
        honest = await promised(server, ROOM // 8, b"{" * 100_000)
        other = await server.connect()
        other.write(promise(ROOM))
        assert (await other.read()).status == 503
        await promised(server, ROOM // 2)
        assert not honest.gone and server.runtime.arena.used_blocks == 2

    serve(scenario)


def test_a_body_that_came_owes_nothing():
    async def scenario(server):
        client = await server.connect()
        client.write(promise(1 << 20, b"x"))
        await server.until(lambda: server.runtime.arena.used_blocks == 1)
        client.write(b"x" * ((1 << 20) - 1))
        assert (await client.read()).status == 500
        full = await server.connect()
        full.write(promise(ROOM))
        assert (await full.read()).status == 503

    serve(scenario)


def test_a_body_whose_client_goes_owes_nothing():
    async def scenario(server):
        gone = await promised(server, ROOM // 2)
        gone.close()
        await server.until(lambda: server.runtime.arena.used_blocks == 0)
        await promised(server, ROOM // 2)
        other = await server.connect()
        other.write(promise(ROOM))
        assert (await other.read()).status == 503

    serve(scenario)


def test_a_request_that_the_kernel_has_is_answered_when_the_server_ends():
    async def scenario(server):
        client = await server.connect()
        idle = await server.connect()
        os.write(client.socket.fileno(), infer())  # nothing of it is read before the loop's next turn
        server.front.begin_drain()
        await server.dispatched(1)
        server.execute()
        answer = await client.read()
        assert answer.status == 500 and answer.headers["connection"] == "close"  # as the fake instance answers
        assert await idle.at_end()

    serve(scenario)
