"""Clients' shared memory: what a body names is read by a codec process; long outputs are written by threads."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from tests.wire.helpers import FP32, answer
from tisfast import tuning
from tisfast.errors import BadRequest, NotFound
from tisfast.native.region import Regions, SystemRegion
from tisfast.wire import infer

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


# ---- long outputs, which threads write

LONG = struct.pack("<f", 1.5) * (tuning.LOOP_COPY_BYTES_MAX // 4 + 1)


class HeldExecutor(ThreadPoolExecutor):
    """The loop's threads, which begin when they are told to."""

    def __init__(self):
        super().__init__(1)
        self.orders = []

    def submit(self, work, *args):
        self.orders.append((Future(), partial(work, *args)))
        return self.orders[-1][0]

    def work(self):
        future, order = self.orders.pop(0)
        super().submit(order).add_done_callback(lambda done: future.set_result(done.result()))


@pytest.fixture
def held():
    return HeldExecutor()


def answer_into(bench, tmp_path):
    """An answer whose output goes into a region, and the region."""
    path, room = tmp_path / "output", len(LONG)
    path.write_bytes(bytes(room))
    regions = Regions()
    regions.add(SystemRegion("o", "/out", os.open(path, os.O_RDWR | os.O_CLOEXEC), 0, room))
    output = {"name": "O", "parameters": {"shared_memory_region": "o", "shared_memory_byte_size": room}}
    entry = {"name": "I", "shape": [1], "datatype": "FP32", "data": [1]}
    text = json.dumps({"inputs": [entry], "outputs": [output]}).encode()
    runtime = bench.runtime
    request = infer.parse(runtime.signature, runtime.arena, text, -1, regions=regions)
    return answer(request, [(0, FP32, (len(LONG) // 4,), LONG)], of=runtime.arena), path


def test_the_loop_goes_on_while_a_long_output_is_written(run, tmp_path, held):
    async def scenario(bench):
        bench.loop.set_default_executor(held)
        given, path = answer_into(bench, tmp_path)
        job = bench.render(given)
        del given
        assert len(held.orders) == 1 and path.read_bytes() == bytes(len(LONG))
        held.work()
        assert (await bench.done(job)).error is None and path.read_bytes() == LONG

    run(scenario)


def test_a_client_that_leaves_while_its_output_is_written(run, tmp_path, held):
    async def scenario(bench):
        bench.loop.set_default_executor(held)
        given, path = answer_into(bench, tmp_path)
        job = bench.render(given)
        del given
        bench.codecs.cancel(job)
        assert bench.runtime.arena.used_blocks > 0  # a thread may read them
        held.work()
        while bench.runtime.arena.used_blocks:
            await asyncio.sleep(0)
        assert not bench.results[job].done() and bench.codecs.pids == []
        assert path.read_bytes() == bytes(len(LONG))  # it may use its memory for something else by now

    run(scenario)


def test_answers_of_one_connection_are_written_one_after_the_other(run, tmp_path, held):
    async def scenario(bench):
        bench.loop.set_default_executor(held)
        jobs = [bench.render(answer_into(bench, tmp_path)[0]) for _ in range(3)]
        for job in jobs:
            assert len(held.orders) == 1
            held.work()
            assert (await bench.done(job)).error is None

    run(scenario)


def test_a_region_whose_file_shrinks_before_a_thread_writes(run, tmp_path, held):
    async def scenario(bench):
        bench.loop.set_default_executor(held)
        given, path = answer_into(bench, tmp_path)
        job = bench.render(given)
        del given
        os.truncate(path, 4096)
        held.work()
        assert "has shrunk to 4096 bytes" in (await bench.done(job)).error.message

    run(scenario)


def test_a_server_that_stops_while_an_output_is_written(run, tmp_path, held):
    async def scenario(bench):
        bench.loop.set_default_executor(held)
        job = bench.render(answer_into(bench, tmp_path)[0])
        await bench.codecs.close()
        assert (await bench.done(job)).error.message == "the server stops"
        held.work()
        while bench.runtime.arena.used_blocks:
            await asyncio.sleep(0)

    run(scenario)
