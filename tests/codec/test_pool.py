"""Codec processes: what they do, in whose turn, and what becomes of those that stop, die or take too much."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import signal
import socket
import weakref
from collections import deque
from pathlib import Path

import psutil
import pytest

from tests.codec.helpers import body_of
from tisfast.codec.jobs import BodyInBlock
from tisfast.codec.messages import GENERATE
from tisfast.codec.pool import FairQueue
from tisfast.errors import BadRequest, Unavailable
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

PARSE_MEMORY = 96 << 20  # of a codec with little: it starts, and no large text fits


class Waiting:
    def __init__(self, owner, name):
        self.owner, self.name = owner, name


def test_owners_take_turns():
    queue = FairQueue()
    a, b = object(), object()
    for owner, name in ((a, "a1"), (a, "a2"), (a, "a3"), (b, "b1"), (b, "b2")):
        queue.append(Waiting(owner, name))
    assert [queue.pop().name for _ in range(5)] == ["a1", "b1", "a2", "b2", "a3"]
    assert queue.pop() is None


def test_what_was_removed_does_not_come():
    queue = FairQueue()
    first, second = Waiting("a", 1), Waiting("a", 2)
    queue.append(first)
    queue.append(second)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert queue.pop() is second


def test_no_process_runs_before_there_is_a_job(run):
    async def scenario(bench):
        assert bench.codecs.pids == []

    run(scenario)


def test_a_body_in_a_block_becomes_a_request_without_being_copied(run):
    async def scenario(bench):
        body = body_of([0.5, 2.0])
        block = bench.runtime.arena.take_block(1024)
        memoryview(block)[512 : 512 + len(body)] = body
        job = await bench.done(bench.parse(BodyInBlock(block, 512, len(body))))
        assert (job.error, job.request.id) == (None, "a")
        assert bench.runtime.arena.used_blocks == 1
        del block

    run(scenario)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_body_is_expanded_there(run, coding):
    async def scenario(bench):
        from tisfast.wire.compress import compress  # noqa: PLC0415

        job = await bench.done(bench.parse(compress(coding, body_of([1.0] * 10_000)), coding=coding))
        assert job.error is None
        assert job.request.model is bench.runtime.signature

    run(scenario)


def test_a_body_that_expands_too_far_is_refused(run):
    async def scenario(bench):
        job = await bench.done(bench.parse(gzip.compress(bytes(1 << 20)), coding="gzip", inflated_max=1 << 19))
        assert isinstance(job.error, BadRequest)
        assert "Decompressed data size exceeds the maximum allowed value of 524288 bytes" in job.error.message

    run(scenario)


def test_an_error_is_that_of_the_loop(run):
    async def scenario(bench):
        job = await bench.done(bench.parse(body_of([1.0, 2.0]).replace(b'"I"', b'"X"')))
        assert isinstance(job.error, BadRequest)
        assert "unexpected inference input 'X' for model 'm'" in job.error.message

    run(scenario)


def test_generate(run):
    async def scenario(bench):
        job = await bench.done(bench.parse(b'{"I":[1.0,2.0],"id":"g"}', form=GENERATE))
        assert job.request.id == "g"

    run(scenario)


def test_an_arena_that_is_full_refuses_the_request(run):
    async def scenario(bench):
        bench.runtime.arena = Arena("small", 1 << 16, 1 << 14)
        job = await bench.done(bench.parse(body_of([1.5] * 10_000)))
        assert isinstance(job.error, Unavailable)
        assert "no room for" in job.error.message

    run(scenario)


def test_jobs_run_side_by_side_up_to_the_number_of_processes(run):
    async def scenario(bench):
        jobs = [bench.parse(owner=str(n)) for n in range(6)]
        assert len(bench.codecs.pids) == 2
        for job in jobs:
            assert (await bench.done(job)).error is None
        assert len(bench.codecs.pids) == 2

    run(scenario)


def test_what_a_finished_job_leads_to_is_done_by_the_same_process(run):
    async def scenario(bench):
        found = asyncio.Event()

        def done(job):
            bench.results[job].set_result(job)
            if len(bench.results) == 1:
                bench.parse()
                found.set()

        bench.on_done = done
        first = bench.parse()
        await bench.done(first)
        await found.wait()
        (second,) = set(bench.results) - {first}
        await bench.done(second)
        assert len(bench.codecs.pids) == 1

    run(scenario)


def test_a_signal_to_all_processes_is_the_servers_affair(run):
    """Also of one that has just been started."""

    async def scenario(bench):
        for _ in range(2):
            job = bench.parse()
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(bench.codecs.pids[0], number)
            assert (await bench.done(job)).error is None

    run(scenario)


def test_a_process_that_dies_costs_its_own_job(run):
    async def scenario(bench):
        await bench.done(bench.parse())
        os.kill(bench.codecs.pids[0], signal.SIGSTOP)  # else it may be done before it dies
        lost = bench.parse()
        os.kill(bench.codecs.pids[0], signal.SIGKILL)
        next_one = bench.parse()
        assert "ended (signal SIGKILL)" in (await bench.done(lost)).error.message
        assert (await bench.done(next_one)).error is None

    run(scenario, processes_max=1)


def test_a_job_that_takes_too_long_is_ended_with_its_process(run):
    async def scenario(bench):
        await bench.done(bench.parse())
        (codec,) = bench.codecs._idle
        codec._seconds, pid = 0.2, codec.pid  # it alone: the next one has to start first, on a machine that may be busy
        os.kill(pid, signal.SIGSTOP)
        job = await bench.done(bench.parse())
        assert isinstance(job.error, Unavailable)
        assert "took more than 0.2 s" in job.error.message
        assert (await bench.done(bench.parse())).error is None
        assert bench.codecs.pids != [pid]

    run(scenario, processes_max=1)


def test_a_job_that_takes_too_much_memory_is_refused(run):
    async def scenario(bench):
        body = b'{"inputs":[{"name":"I","shape":[6000000],"datatype":"FP32","data":[' + b"1.5," * 6_000_000 + b"1]}]}"
        job = await bench.done(bench.parse(body))
        assert isinstance(job.error, Unavailable)
        assert (await bench.done(bench.parse())).error is None

    run(scenario, processes_max=1, memory_bytes=PARSE_MEMORY)


def test_what_was_cancelled_is_not_told_and_gives_its_memory_back(run):
    async def scenario(bench):
        await bench.done(bench.parse())
        os.kill(bench.codecs.pids[0], signal.SIGSTOP)
        running, waiting = bench.parse(), bench.parse()
        bench.codecs.cancel(waiting)
        bench.codecs.cancel(running)  # in vain: it stands still, and is ended
        after = await bench.done(bench.parse())
        assert after.error is None
        assert not bench.results[running].done()
        assert not bench.results[waiting].done()

    run(scenario, processes_max=1)


def test_what_waits_at_the_end_is_refused(run):
    async def scenario(bench):
        jobs = [bench.parse(owner=str(n)) for n in range(4)]
        await bench.codecs.close()
        assert [(await bench.done(job)).error is not None for job in jobs] == [True] * 4
        with pytest.raises(Unavailable):
            bench.parse()

    run(scenario)


def test_a_process_may_use_its_own_descriptors_only(run):
    async def scenario(bench):
        await bench.done(bench.parse())
        process = psutil.Process(bench.codecs.pids[0])
        links = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
        others = [link for link in links if link != "/dev/null" and "memfd:" not in link and "socket" not in link]
        assert len([link for link in links if "socket" in link]) == 1
        assert len(others) <= 1  # our stderr

    run(scenario)


def test_models_and_arenas_are_forgotten_when_they_go(run):
    async def scenario(bench):
        await bench.done(bench.parse())
        pid = bench.codecs.pids[0]
        gone = weakref.ref(bench.runtime.arena)
        bench.results.clear()
        bench.runtime.arena = Arena("next", 1 << 20, 1 << 19)
        bench.runtime.signature = ModelSignature(
            "n", "1", 0, False, [("I", 11, (-1,), False, False)], [("O", 11, (-1,))]
        )
        gc.collect()
        assert gone() is None
        await asyncio.sleep(0)  # the loop tells the process
        await bench.done(bench.parse())
        assert "memfd:in" not in Path(f"/proc/{pid}/maps").read_text()

    run(scenario, processes_max=1)


def test_the_same_process_serves_again(run):
    async def scenario(bench):
        pids = set()
        for _ in range(3):
            assert (await bench.done(bench.parse())).error is None
            pids.update(bench.codecs.pids)
            await asyncio.sleep(0)
        assert len(pids) == 1

    run(scenario)


def test_a_process_that_was_idle_for_too_long_gets_no_job(run):
    async def scenario(bench):
        assert (await bench.done(bench.parse())).error is None
        await asyncio.sleep(0)
        (codec,) = bench.codecs._idle
        bench.codecs._retire(codec)  # its time is over, and it is not dead yet
        assert (await asyncio.wait_for(bench.done(bench.parse()), 30)).error is None

    run(scenario)


def test_a_process_whose_stream_has_ended_gets_no_job(run):
    async def scenario(bench):
        assert (await bench.done(bench.parse())).error is None
        await asyncio.sleep(0)
        (codec,) = bench.codecs._idle
        codec._socket.shutdown(socket.SHUT_RD)  # what a death looks like before the process is gone
        while codec._late is None:
            await asyncio.sleep(0)
        job = await bench.done(bench.parse())
        assert job.error is None
        assert codec.job is None

    run(scenario)


def test_what_is_collected_while_a_message_is_sent_keeps_none_back(run):
    class Collecting(deque):
        def append(self, message):
            super().append(message)
            gc.collect()

    async def scenario(bench):
        first = await bench.done(bench.parse(body_of([1.0])))
        (codec,) = bench.codecs._codecs
        codec._outbox = Collecting()
        for _ in range(3):
            held = Arena("cycle", 1 << 20, 1 << 19)
            codec.file(held, writable=False)
            cycle = [held]
            cycle.append(cycle)
            del held, cycle  # the collector ends it, in the middle of the next message
            job = await bench.done(bench.parse(body_of([2.0])))
            assert job.error is None and job.request.id == first.request.id

    run(scenario)
