"""Answers that are long to make leave the loop to others between slices."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.operations.helpers import Served, ask, registry
from tisfast.config.metrics_settings import MetricsSettings
from tisfast.operations.routes import Routes
from tisfast.operations.service import Service
from tisfast.operations.slices import in_slices
from tisfast.telemetry.metrics import MetricsRoutes, Sources


def test_what_takes_no_more_than_a_slice_is_there_at_once():
    assert in_slices(iter("abc"), "".join, math.inf) == "abc"


@pytest.mark.parametrize("count", [0, 1, 4, 5, 1000])
def test_what_takes_longer_is_made_while_others_have_their_turn(count):
    async def scenario():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        made = in_slices(iter(range(count)), list, 0.0)
        found = await made if asyncio.isfuture(made) else made
        beside.cancel()
        return found, turns

    found, turns = asyncio.run(scenario())
    assert found == list(range(count))
    assert turns >= count // 4


def test_what_fails_fails_where_it_is_waited_for():
    def broken():
        yield from range(10)
        raise ValueError("broken")

    async def scenario():
        await in_slices(broken(), list, 0.0)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(scenario())


SCRAPE = """
import math, sys
import tisfast.app
from tisfast.config.metrics_settings import MetricsSettings
from tisfast.engine.registry import Registry
from tisfast.telemetry.metrics import MetricsRoutes, Sources
from tisfast.wire import head
routes = MetricsRoutes(Sources(Registry(), tuple), MetricsSettings(), slice_seconds=math.inf)
before = set(sys.modules)
assert routes.handle(head.parse(b"GET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"), b"").status == 200
print(sorted(set(sys.modules) - before))
"""


def test_the_first_scrape_imports_nothing():
    """The event loop would wait for it."""
    done = subprocess.run([sys.executable, "-c", SCRAPE], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_scrape_in_slices_says_what_one_in_one_go_says():
    served = [Served(f"m{i}") for i in range(20)]
    sources = Sources(registry(*served), tuple)

    async def scenario():
        made = MetricsRoutes(sources, MetricsSettings(cpu=False), slice_seconds=0.0).handle(ask("GET", "/metrics"), b"")
        return await made

    whole = MetricsRoutes(sources, MetricsSettings(cpu=False), slice_seconds=math.inf)
    text = asyncio.run(scenario()).body
    assert text == whole.handle(ask("GET", "/metrics"), b"").body
    assert list(text_string_to_metric_families(text.decode()))


@pytest.mark.parametrize("path", ["/v2/models/m/stats", "/v2/models/stats"])
def test_statistics_of_very_many_versions_are_made_in_slices(path):
    versions = [str(number) for number in range(1, 301)]
    served = [Served(version=version) for version in versions]
    routes = Routes(Service(registry(*served), server_id="t", server_version="0"))

    async def scenario():
        made = routes.handle(ask("GET", path), b"")
        assert asyncio.isfuture(made)
        return await made

    found = json.loads(asyncio.run(scenario()).body)["model_stats"]
    assert [entry["version"] for entry in found] == versions
