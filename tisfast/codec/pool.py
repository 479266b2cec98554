"""The codec processes of one server, and what waits for them.  Layer 3 (codec).

A process is started when there is a job and no idle one, and ends when it has had none for a while.  Jobs are taken in
turns of their owners (connections), answers before requests: what ends a request frees memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from tisfast import limits, tuning
from tisfast.codec.codec_process import Bounds, Codec, fail
from tisfast.codec.jobs import Job
from tisfast.errors import Unavailable
from tisfast.native.memory import Arena

if TYPE_CHECKING:
    from tisfast.executor import DaemonExecutor

log = logging.getLogger("tisfast.codec")


class FairQueue:
    """Jobs by owner: each owner's first in turn."""

    def __init__(self) -> None:
        self._by_owner: dict[int, deque[Job]] = {}

    def append(self, job: Job) -> None:
        """Behind the owner's others."""
        self._by_owner.setdefault(id(job.owner), deque()).append(job)

    def pop(self) -> Job | None:
        """The next one; its owner comes last from here on."""
        if not self._by_owner:
            return None
        owner = next(iter(self._by_owner))
        jobs = self._by_owner.pop(owner)
        job = jobs.popleft()
        if jobs:
            self._by_owner[owner] = jobs
        return job

    def remove(self, job: Job) -> bool:
        """Take it out; False when it does not wait here."""
        jobs = self._by_owner.get(id(job.owner))
        if jobs is None or job not in jobs:
            return False
        jobs.remove(job)
        if not jobs:
            del self._by_owner[id(job.owner)]
        return True


class Codecs:
    """All of them.

    processes_max: at one time, more than 0; bytes_min: what is smaller stays on the loop; memory_bytes: that one
    process may take; text_bytes: that all answers' texts may take; copies: threads for what jobs copy first, None: the
    loop's own; job_seconds: that one job may take.
    """

    def __init__(  # noqa: PLR0913 - its bounds
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        processes_max: int,
        bytes_min: int,
        memory_bytes: int,
        text_bytes: int,
        copies: DaemonExecutor | None = None,
        job_seconds: float = limits.CODEC_JOB_SECONDS_MAX,
    ) -> None:
        self.bytes_min = bytes_min
        self._loop, self._copies = loop, copies
        self._processes_max, self._text_bytes = processes_max, text_bytes
        self._bounds = Bounds(memory_bytes, job_seconds)
        self._text: Arena | None = None
        self._requests, self._answers = FairQueue(), FairQueue()
        self._waiting_jobs = self._waiting_bytes = 0
        self._codecs: set[Codec] = set()
        self._idle: dict[Codec, asyncio.TimerHandle] = {}
        self._closed: asyncio.Event | None = None
        self._giving = False

    @property
    def pids(self) -> list[int]:
        """Process ids of the running codec processes."""
        return [codec.pid for codec in self._codecs]

    def submit(self, job: Job) -> None:
        """Do it when it is its turn.  Raises Unavailable when too much waits."""
        if self._closed is not None:
            raise Unavailable("the server stops")
        if not job.answers:
            self._admit(job)
        self._queue(job)

    def _queue(self, job: Job) -> None:
        (self._answers if job.answers else self._requests).append(job)
        self._next()

    def _admit(self, job: Job) -> None:
        if self._waiting_jobs >= limits.CODEC_WAITING_JOBS_MAX or (
            self._waiting_bytes + job.nbytes > limits.CODEC_WAITING_BYTES_MAX
        ):
            raise Unavailable(
                f"{self._waiting_jobs} large requests of {self._waiting_bytes} bytes wait to be read, and one of "
                f"{job.nbytes} bytes came; {limits.CODEC_WAITING_JOBS_MAX} and {limits.CODEC_WAITING_BYTES_MAX} are "
                "the limits; retry later, or send tensors in binary form"
            )
        self._waiting_jobs += 1
        self._waiting_bytes += job.nbytes

    def cancel(self, job: Job) -> None:
        """The job's client has gone: `done` is not called."""
        job.cancelled = True
        if (self._answers if job.answers else self._requests).remove(job):
            self._left(job)
            job.forget()
            return
        for codec in self._codecs:
            if codec.job is job:
                codec.hurry()

    def _left(self, job: Job) -> None:
        if not job.answers:
            self._waiting_jobs -= 1
            self._waiting_bytes -= job.nbytes

    def _next(self) -> None:
        """Give waiting jobs to idle processes; start one when none is idle."""
        if self._giving:  # a job that could not even begin
            return
        self._giving = True
        try:
            self._give()
        finally:
            self._giving = False

    def _give(self) -> None:
        while self._idle or len(self._codecs) < self._processes_max:
            job = self._answers.pop() or self._requests.pop()
            if job is None:
                return
            self._left(job)
            if job.answers:
                job.arena = self._texts()
            try:
                codec = self._one()
            except OSError as error:
                fail(job, Unavailable(f"no process to work on the request: {error.strerror}"))
                job.forget()
                continue
            codec.run(job)

    def _one(self) -> Codec:
        for codec in [each for each in self._idle if each.closing]:  # killed for what it said: it is as good as dead
            self._idle.pop(codec).cancel()
        if not self._idle:
            codec = Codec(self._loop, self._bounds, self._copies, self._free, self._ended)
            self._codecs.add(codec)
            return codec
        codec, timer = self._idle.popitem()  # the one that worked last: its caches are warm
        timer.cancel()
        return codec

    def _retire(self, codec: Codec) -> None:
        """It was idle for too long, and gets nothing any more."""
        self._idle.pop(codec, None)
        codec.kill("it was idle")

    def _texts(self) -> Arena:
        if self._text is None:
            self._text = Arena("tisfast-text", limits.ARENA_CAP_FACTOR * self._text_bytes, self._text_bytes)
        return self._text

    def _free(self, codec: Codec) -> None:
        if codec.closing:
            return
        self._idle[codec] = self._loop.call_later(tuning.CODEC_IDLE_SECONDS, self._retire, codec)
        self._next()

    def _ended(self, codec: Codec) -> None:
        self._codecs.discard(codec)
        timer = self._idle.pop(codec, None)
        if timer is not None:
            timer.cancel()
        if not self._codecs:
            if self._text is not None:
                self._text.trim()
            if self._closed is not None:
                self._closed.set()
                return
        self._next()

    async def close(self) -> None:
        """End all processes; what waits is refused."""
        self._closed = asyncio.Event()
        while (job := self._answers.pop() or self._requests.pop()) is not None:
            fail(job, Unavailable("the server stops"))
            job.forget()
        for codec in list(self._codecs):
            codec.close()
        if self._codecs:
            waiting = asyncio.ensure_future(self._closed.wait())
            await asyncio.wait({waiting}, timeout=limits.KILL_SECONDS_MAX)
            waiting.cancel()
        for codec in self._codecs:
            log.error("codec process %d does not end after SIGKILL", codec.pid)
