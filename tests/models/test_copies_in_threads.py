"""What is long to copy waits for no load: it has threads of its own, and a bound."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.loops import fresh_loop
from tisfast import limits
from tisfast.executor import DaemonExecutor
from tisfast.models.caching import in_thread

SECONDS_MAX = 60


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def copies():
    made = DaemonExecutor(1, "copying")
    yield made
    made.shutdown()


def ran(scenario):
    with fresh_loop() as loop:
        loads = DaemonExecutor(1)
        loop.set_default_executor(loads)
        loop.run_until_complete(asyncio.wait_for(scenario(loop), SECONDS_MAX))
        loads.shutdown()


def test_loads_that_wait_hold_up_no_copy(gate, copies):
    async def scenario(loop):
        load = loop.run_in_executor(None, gate.wait, SECONDS_MAX)
        copied = loop.create_future()
        in_thread(copies, lambda: threading.current_thread().name, copied.set_result)
        assert await copied == "copying" and not load.done()
        gate.set()
        await load

    ran(scenario)


def test_what_fails_is_logged_and_as_good_as_nothing(copies, caplog):
    async def scenario(loop):
        copied = loop.create_future()
        in_thread(copies, lambda: 1 / 0, copied.set_result)
        assert await copied is None

    ran(scenario)
    assert "a request or an answer could not be copied or hashed beside the loop" in caplog.text


def test_beyond_the_bound_nothing_waits(gate, copies, monkeypatch):
    monkeypatch.setattr(limits, "COPIES_WAITING_MAX", 2)

    async def scenario(loop):
        begun, told = threading.Event(), []
        in_thread(copies, lambda: begun.set() or gate.wait(SECONDS_MAX), told.append)
        assert begun.wait(SECONDS_MAX)
        for number in range(3):
            in_thread(copies, lambda number=number: number, told.append)
        assert told == [None]
        gate.set()
        while len(told) < 4:
            await asyncio.sleep(0)
        assert told == [None, True, 0, 1]

    ran(scenario)
