"""Clients' shared memory: what a body names is read by a codec process."""

from __future__ import annotations

import json
import os
import struct

import pytest

from tisfast.errors import BadRequest, NotFound
from tisfast.native.region import Regions, SystemRegion

DATA = struct.pack("<4f", 1, 2, 3, 4)
OFFSET = 4096


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "region"
    path.write_bytes(bytes(OFFSET) + DATA)
    return path


def registered(file):
    regions = Regions()
    regions.add(SystemRegion("r", "/key", os.open(file, os.O_RDWR | os.O_CLOEXEC), OFFSET, len(DATA)))
    return regions


def body(name="r", nbytes=16):
    parameters = {"shared_memory_region": name, "shared_memory_byte_size": nbytes}
    entry = {"name": "I", "shape": [nbytes // 4], "datatype": "FP32", "parameters": parameters}
    return json.dumps({"inputs": [entry]}).encode()


def test_a_region_is_copied_into_the_arena(run, file):
    async def scenario(bench):
        job = await bench.done(bench.parse(body(), regions=registered(file)))
        assert job.error is None
        place, nbytes = struct.unpack_from("<QQ", job.request.record, 48 + 16)
        assert job.request.read(place, nbytes) == DATA

    run(scenario)


def test_a_region_that_nobody_registered(run, file):
    async def scenario(bench):
        job = await bench.done(bench.parse(body("x"), regions=registered(file)))
        assert isinstance(job.error, NotFound)
        assert job.error.message == "Unable to find shared memory region: 'x'"

    run(scenario)


def test_more_than_the_region_has(run, file):
    async def scenario(bench):
        job = await bench.done(bench.parse(body(nbytes=32), regions=registered(file)))
        assert isinstance(job.error, BadRequest)
        assert "Invalid offset + byte size for shared memory region: 'r'" in job.error.message

    run(scenario)


def test_a_file_that_was_truncated_since(run, file):
    async def scenario(bench):
        regions = registered(file)
        os.truncate(file, OFFSET)
        job = await bench.done(bench.parse(body(), regions=regions))
        assert isinstance(job.error, BadRequest)
        assert f"has shrunk to {OFFSET} bytes" in job.error.message

    run(scenario)
