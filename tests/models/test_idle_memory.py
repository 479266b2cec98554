"""An idle model's pages go back to the system, a slice in each turn of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tisfast import tuning
from tisfast.models.idle_memory import IdleTrimmer
from tisfast.native.memory import Arena

USED_BYTES = 8 << 20
DUE_NS = int(tuning.ARENA_TRIM_SECONDS * 1e9)


def used():
    """A rest, and the arena of its runtime, of which a request has used something."""
    arena = Arena("test", 16 << 20, 16 << 20)
    memoryview(arena.take_block(USED_BYTES))[:] = bytes(USED_BYTES)
    runtime = SimpleNamespace(arena=arena, cache=None, stats=SimpleNamespace(execution_count=1))
    rest = IdleTrimmer(runtime)
    rest.look(0, 0)
    return rest, runtime


async def turns_until(condition):
    turns = 0
    while not condition():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_pages_go_back_in_slices():
    async def scenario():
        rest, runtime = used()
        rest.look(0, DUE_NS - 1)
        assert runtime.arena.resident_bytes >= USED_BYTES
        rest.look(0, DUE_NS)
        assert runtime.arena.resident_bytes >= USED_BYTES - tuning.ARENA_TRIM_SLICE_BYTES
        return await turns_until(lambda: runtime.arena.resident_bytes == 0)

    assert asyncio.run(scenario()) >= USED_BYTES // tuning.ARENA_TRIM_SLICE_BYTES - 1


def test_who_comes_meanwhile_ends_it():
    async def scenario():
        rest, runtime = used()
        rest.look(0, DUE_NS)
        rest.look(1, DUE_NS)
        left = runtime.arena.resident_bytes
        for _ in range(20):
            await asyncio.sleep(0)
        assert runtime.arena.resident_bytes == left > 0

    asyncio.run(scenario())


def test_pages_that_an_instance_has_pinned_stay_until_it_lets_go_of_them():
    async def scenario():
        pinned = [True]
        rest, runtime = used()
        for seconds in range(5):
            rest.look(0, DUE_NS + seconds * 1_000_000_000, lambda: pinned[0])
            await asyncio.sleep(0)
        assert runtime.arena.resident_bytes >= USED_BYTES
        pinned[0] = False
        rest.look(0, DUE_NS + 5_000_000_000, lambda: pinned[0])
        left = runtime.arena.resident_bytes
        assert left < USED_BYTES
        pinned[0] = True  # somebody comes before all pages are gone
        for _ in range(20):
            await asyncio.sleep(0)
        assert runtime.arena.resident_bytes == left

    asyncio.run(scenario())
