"""Codec processes on a loop of one's own."""

from __future__ import annotations

import asyncio

import pytest

from tests.codec.helpers import SECONDS_MAX, Bench
from tests.loops import fresh_loop


@pytest.fixture
def run():
    """run(scenario, **bounds): a coroutine function on a fresh loop, with a Bench; no block may stay out."""

    def on(scenario, **bounds):
        with fresh_loop() as loop:
            bench = Bench(loop, **bounds)

            async def whole():
                try:
                    await asyncio.wait_for(scenario(bench), SECONDS_MAX)
                finally:
                    await bench.codecs.close()

            loop.run_until_complete(whole())
            assert bench.codecs.pids == []
            bench.results.clear()
            assert bench.runtime.arena.used_blocks == 0

    return on
