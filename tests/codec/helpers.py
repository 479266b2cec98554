"""Codec processes, a model to read requests for, and what became of jobs."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

from tests.waiting import until
from tisfast.codec.jobs import ParseJob, RenderJob
from tisfast.codec.messages import INFER
from tisfast.codec.pool import Codecs
from tisfast.native.memory import Arena
from tisfast.wire.signature import ModelSignature

SECONDS_MAX = 60
OPTIONS = {"coding": "", "inflated_max": 1 << 26, "head_bytes": -1, "max_input_bytes": 1 << 26, "forwarded": b""}


def body_of(values):
    tensor = {"name": "I", "shape": [len(values)], "datatype": "FP32", "data": values}
    return json.dumps({"id": "a", "inputs": [tensor]}).encode()


class Bench:
    """Codecs, a model's runtime, and what became of jobs."""

    def __init__(self, loop, **bounds):
        self.loop = loop
        given = {"processes_max": 2, "bytes_min": 0, "memory_bytes": 1 << 30, "text_bytes": 1 << 28, **bounds}
        self.codecs = Codecs(loop, **given)
        signature = ModelSignature("m", "1", 0, False, [("I", 11, (-1,), False, False)], [("O", 11, (-1,))])
        self.runtime = SimpleNamespace(signature=signature, arena=Arena("in", 1 << 30, 1 << 29))
        self.results: dict = {}
        self.on_done = lambda job: self.results[job].set_result(job)

    def parse(self, body=None, owner=None, form=INFER, regions=None, **options):
        job = ParseJob(
            owner or self, self._done, form=form, runtime=self.runtime, body=body or body_of([1, 2]),
            nbytes=len(body or b""), regions=regions, options={**OPTIONS, **options},
        )  # fmt: skip
        self.results[job] = self.loop.create_future()
        self.codecs.submit(job)
        return job

    def render(self, answer, owner=None, form=INFER, coding=""):
        job = RenderJob(owner or self, self._done, form=form, answer=answer, nbytes=0, coding=coding)
        self.results[job] = self.loop.create_future()
        self.codecs.submit(job)
        return job

    def _done(self, job):
        self.on_done(job)

    async def done(self, job):
        await asyncio.wait_for(self.results[job], SECONDS_MAX)
        return job

    async def processes(self, count):
        """Until there are so many."""
        async with asyncio.timeout(SECONDS_MAX):
            await until(lambda: len(self.codecs.pids) == count)
