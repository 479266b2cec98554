"""A uvloop to run coroutines on, for the tests of supervise."""

import asyncio

import pytest
import uvloop

SECONDS_MAX = 30


@pytest.fixture
def loop():
    made = uvloop.new_event_loop()
    yield made
    made.run_until_complete(asyncio.sleep(0))
    made.close()


@pytest.fixture
def run(loop):
    """Run one coroutine to its end, within a deadline."""
    return lambda coroutine: loop.run_until_complete(asyncio.wait_for(coroutine, SECONDS_MAX))
