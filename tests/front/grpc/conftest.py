"""Runs scenarios against a front on a fresh loop."""

from __future__ import annotations

import asyncio

import pytest

from tests.front.grpc.helpers import GrpcServer
from tests.loops import fresh_loop

SECONDS_MAX = 60  # of a scenario, on a machine that has much else to do


@pytest.fixture
def run():
    """Runs a coroutine function with a fresh server on a fresh loop; whatever it did, no block may stay out."""

    def go(scenario, **options):
        with fresh_loop() as loop:
            server = loop.run_until_complete(GrpcServer.start(loop, **options))
            try:
                loop.run_until_complete(asyncio.wait_for(scenario(server), SECONDS_MAX))
            finally:
                loop.run_until_complete(asyncio.wait_for(server.close(), SECONDS_MAX))
            assert server.runtime.arena.used_blocks == 0
            assert server.front._shared.collected_bytes == 0
            assert server.errors == []

    return go
