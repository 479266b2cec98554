"""One model instance: its worker process, kept alive.  Layer 4 (processes).

STARTING -> LOADING -> READY -> DRAINING -> STOPPED
              ^          |
              +-- DEAD <-+   (requests answered or requeued, then a new one after a delay)
              +- ASLEEP <+   (no worker, to save memory, until `wake`)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from tisfast import limits
from tisfast.errors import TisError
from tisfast.processes.backoff import Backoff
from tisfast.processes.readiness import ReadinessCheck
from tisfast.processes.worker import Birth, End, Worker, WorkerFailed, Workplace
from tisfast.types import Status

if TYPE_CHECKING:
    from tisfast.config.instance_groups import PlannedInstance
    from tisfast.native.memory import Block, MemoryFile
    from tisfast.native.region import DeviceFile
    from tisfast.processes.gpu_pool import UnopenedMemory

log = logging.getLogger("tisfast.processes")


class InstanceState(Enum):
    """Where an instance is in its life; the values are what the log and the model table print."""

    STARTING = "starting"
    READY = "ready"
    DEAD = "restarting"
    BROKEN = "failing to restart"
    ASLEEP = "asleep"
    WAKING = "waking"
    DRAINING = "draining"
    STOPPED = "stopped"


class LinkFace(Protocol):
    """The face of a link (processes/link.pyx) that an instance uses: one link for one worker."""

    @property
    def fds(self) -> Sequence[int]:
        """Channel, bell page, bell eventfd, cells, input arena, output arena, share socket."""

    @property
    def executing_since_ns(self) -> int:
        """When the running execution was taken, CLOCK_MONOTONIC; 0 when the worker is idle."""

    def open(self) -> None:
        """The worker is ready: it may be given work."""

    def close(self, lingers: str = "") -> tuple[list[Any], list[Any]]:
        """The worker is over: its unanswered requests, (taken, untaken).

        lingers: Worker.lingers; what its process may have open of a GPU is let go of only by `process_ended`.
        """

    def process_ended(self) -> None:
        """Behind `close`: it has nothing open any more, and what it was lent of a GPU is another one's."""

    @property
    def inflight(self) -> int:
        """Requests that it has and has not answered for the last time."""

    def rest(self) -> None:
        """No more work from now on."""

    def request_stop(self) -> None:
        """The worker leaves its loop when its ring is empty."""

    def listen(self) -> None:
        """The worker's model calls others: it may speak while it has no request."""

    def trace_context(self, ticket: object) -> str | None:
        """The trace context of a request that the worker has, None when it is not traced."""

    end: Callable[[str], None]
    whose: Callable[[], str]
    question: int

    @property
    def gpu(self) -> int:
        """See gpu_pool.BorrowerFace."""

    def lend(self, memory: MemoryFile | None, *, is_open: bool = False) -> None:
        """See gpu_pool.BorrowerFace."""

    def closed_there(self, share: int, refusal: str) -> None:
        """See gpu_pool.BorrowerFace."""

    def unopened(self, share: int) -> UnopenedMemory | None:
        """See gpu_pool.BorrowerFace."""

    def name_regions(self, text: str) -> str:
        """See gpu_pool.BorrowerFace."""

    def copying(self, number: int, share: int, nbytes: int) -> tuple[DeviceFile, Block]:
        """See gpu_pool.BorrowerFace."""

    def copied(self, number: int) -> None:
        """See gpu_pool.BorrowerFace."""


class StatsFace(Protocol):
    """The face of a model's counters that an instance uses."""

    execution_count: int


class RuntimeFace(Protocol):
    """The face of a model (engine/runtime.pyx) that an instance uses."""

    @property
    def stats(self) -> StatsFace:
        """The model's counters."""

    def lay_side_by_side(self) -> None:
        """The model takes whole batches as arrays."""

    def add_link(self, link: Any) -> None:
        """Give this link work from now on."""

    def remove_link(self, link: Any) -> None:
        """Never again."""

    def requeue(self, requests: list[Any]) -> None:
        """Back to the head of the queue."""

    def fail(self, requests: list[Any], status: int, message: str) -> None:
        """Answer each with an error."""


class WarmUpFace(Protocol):
    """The face of a model's warm-up (models/warm_up.py) that an instance uses."""

    async def run(self, link: Any, worker: Worker) -> None:
        """Execute the samples.  Raises WorkerFailed, after which the worker is gone or about to be."""


class Instance:
    """Starts a worker, and another one whenever it dies, until `stop`."""

    def __init__(
        self,
        birth: Birth,
        place: Workplace,
        runtime: RuntimeFace,
        make_link: Callable[[], LinkFace],
        changed: Callable[[], None],
        warm_up: WarmUpFace | None = None,
    ) -> None:
        """make_link: a fresh link for each worker.  changed: called after each change of `state`."""
        self.name = birth.name
        self.state = InstanceState.STARTING
        self.reason = "starting"
        self.restarts = 0
        self._birth = birth
        self._place = place
        self._runtime = runtime
        self._make_link = make_link
        self._changed = changed
        self._warm_up = warm_up
        self._retired = False
        self._backoff = Backoff()
        self._worker: Worker | None = None
        self._link: LinkFace | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ready_at = 0.0
        self._executions_before = 0
        self._delay = 0.0

    @property
    def pid(self) -> int:
        """The worker's process id, 0 while there is none."""
        return self._worker.pid if self._worker is not None else 0

    @property
    def is_over(self) -> bool:
        """Its worker is gone, or there is none."""
        return self._worker is None or self._worker.ended.done()

    @property
    def pins(self) -> bool:
        """Whether its worker may have pinned pages of the arenas (worker.Worker.pins)."""
        return self._worker is not None and self._worker.pins

    @property
    def readiness(self) -> ReadinessCheck | None:
        """Where the model's own `is_ready` is asked, None when it has none."""
        return self._worker.readiness if self._worker is not None else None

    @property
    def title(self) -> str:
        """For the log."""
        return f"instance {self.name}"

    @property
    def outstanding(self) -> int:
        """Requests that it has and has not answered for the last time."""
        return self._link.inflight if self._link is not None else 0

    @property
    def planned(self) -> PlannedInstance:
        """The planned instance of the configuration."""
        return self._birth.planned

    def retire(self) -> None:
        """No more work, and no other worker when this one dies; `stop` is still to come."""
        self._retired = True
        if self._link is not None:
            self._link.rest()

    def set_verbose(self, level: int) -> None:
        """The worker's verbose lines are wanted when above 0; holds for the workers that come after it, too."""
        self._birth.load["model"]["log_verbose"] = level
        if self._worker is not None:
            self._worker.set_verbose(level)

    async def load(self) -> None:
        """Start the first worker.  Raises WorkerFailed; then there is none."""
        await self._start()
        self._keep_with(self._keep())

    async def stop(self, seconds: float, _message: str = "") -> None:
        """Let the worker finalize for at most `seconds`, then kill it."""
        self._set(InstanceState.DRAINING, "stopping")
        self._stop_keeping()
        await self._end_worker(seconds)
        self._set(InstanceState.STOPPED, "stopped")

    def doze(self) -> None:
        """No more work; `sleep` follows.  Only while it has none."""
        self._stop_keeping()
        if self._link is not None:
            self._link.rest()
        self._set(InstanceState.ASLEEP, "asleep to save memory; its next request wakes it")

    async def sleep(self, seconds: float) -> None:
        """Let the worker finalize for at most `seconds`, then kill it.  After `doze`."""
        await self._end_worker(seconds)

    async def wake(self) -> None:
        """Start a worker again; done when it serves, or could not be started and will be tried again."""
        if self.state is not InstanceState.ASLEEP:
            return
        self._set(InstanceState.WAKING, "being woken")
        risen: asyncio.Future[None] = self._place.loop.create_future()
        self._keep_with(self._rise(risen))
        assert self._keeper is not None
        await asyncio.wait({risen, self._keeper}, return_when=asyncio.FIRST_COMPLETED)

    def _stop_keeping(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None  # the two refer to each other, and memory is not to wait for the garbage collector

    async def _end_worker(self, seconds: float) -> None:
        worker, link = self._worker, self._link
        if worker is not None and not worker.ended.done():
            worker.stop()
            if link is not None:
                link.request_stop()
            if not await _ends(worker, seconds):
                log.warning(
                    "instance %s did not finalize within %g s and is killed: it may take %g s when its model is "
                    "unloaded, and what is left of --exit-timeout-secs when the server ends",
                    self.name, seconds, limits.WORKER_STOP_SECONDS_MAX, extra=self._extra(),
                )  # fmt: skip
                worker.kill("was killed: it did not stop in time")
                await asyncio.wait({worker.ended})  # limits.KILL_SECONDS_MAX at most
        self._lose("stopped", lambda taken: {"instance stopped": taken})

    def look_for_hang(self, now: int, limit_seconds: float) -> None:
        """Kill the worker if its running execution is older than the limit.

        now: CLOCK_MONOTONIC, ns.
        """
        if self._worker is None or self._link is None:
            return
        since = self._link.executing_since_ns
        if since and now - since > limit_seconds * 1e9:
            what = "was let go" if self._birth.once else "was killed"  # a guest's process is its user's
            self._worker.kill(
                f"{what}: this execution took longer than the limit of {limit_seconds:g} s "
                "(--execution-timeout-secs, or the model's parameter EXECUTION_TIMEOUT_SECONDS)"
            )

    async def _start(self) -> None:
        try:
            link = self._make_link()
        except (TisError, OSError) as error:
            raise WorkerFailed(f"no shared memory for instance {self.name}: {error}", kind="fork") from error
        worker = self._worker = Worker(self._birth, self._place)
        worker.on_calls, worker.trace_context, worker.borrower = link.listen, link.trace_context, link
        link.end, link.whose = worker.kill, worker.named
        try:
            ready = await worker.start(link.fds)
            if self._warm_up is not None:
                await self._warm_up.run(link, worker)
            if worker.ended.done():
                end = worker.ended.result()
                raise WorkerFailed(f"the worker process of {self.name} {end.text} when it had just loaded")
        except BaseException:
            self._worker = None
            await dismiss(worker, link, "was not needed any more")  # all is free before anybody is told, or tries again
            raise
        self._link = link
        self._ready_at = self._place.loop.time()
        self._executions_before = self._runtime.stats.execution_count
        if ready.get("arrays"):
            self._runtime.lay_side_by_side()
        self._runtime.add_link(link)
        facts = self._birth.facts
        worker.serves = True
        link.open()
        log.info(
            "instance %s is ready (pid %d)", self.name, worker.pid, extra={"facts": {**facts, "worker_pid": worker.pid}}
        )
        self._set(InstanceState.READY, "")

    def _keep_with(self, work: Coroutine[Any, Any, None]) -> None:
        self._keeper = self._place.loop.create_task(work, name=f"keep {self.name}")
        self._keeper.add_done_callback(self._kept)

    async def _rise(self, risen: asyncio.Future[None]) -> None:
        started = await self._started()
        if not risen.cancelled():
            risen.set_result(None)
        if not started:
            await self._revive()
        await self._keep()

    async def _keep(self) -> None:
        while self._worker is not None:
            end = await asyncio.shield(self._worker.ended)
            if self._birth.once:
                self._left(end)
                return
            self._died(end)
            if self._retired:
                return
            await self._revive()

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and keeper.exception() is not None:
            log.critical("keeper of instance %s failed", self.name, exc_info=keeper.exception(), extra=self._extra())
            self._set(InstanceState.STOPPED, "its supervision failed; see the log")

    async def left(self) -> None:
        """Until the end of a worker that cannot be started again is handled."""
        if self._keeper is not None:
            await asyncio.wait({self._keeper})

    def _left(self, end: End) -> None:
        log.info("%s %s", self._named, end.text, extra=self._extra())
        self._set(InstanceState.STOPPED, f"instance {self.name} {end.text}")
        self._lose(end.text, self._birth.deaths.advice)

    def _died(self, end: End) -> None:
        lived = self._place.loop.time() - self._ready_at
        if self._runtime.stats.execution_count > self._executions_before:
            self._backoff.forgive()  # the model works: what killed this worker is no reason to make clients wait
        delay = self._backoff.next_seconds(was_ready=True, lived_seconds=lived)
        log.error(
            "%s %s; its process lived for %.1f s; next start in %g ms",
            self._named,
            end.text,
            lived,
            delay * 1000,
            extra=self._extra(),
        )
        self._set(InstanceState.DEAD, f"instance {self.name} {end.text} and is being restarted")
        self._lose(end.text, self._birth.deaths.advice)
        self._delay = delay

    @property
    def _named(self) -> str:
        """The worker, for the log."""
        return self.title if self._worker is None else self._worker.named()

    def _lose(self, text: str, advise: Callable[[list[Any]], dict[str, list[Any]]]) -> None:
        """Answer what the worker had taken; put back what it had not.  advise: the advice for each of those."""
        worker, self._worker = self._worker, None
        link, self._link = self._link, None
        if link is None or worker is None:
            return
        self._say(self._runtime.remove_link, link)
        taken, untaken = close_link(link, worker)
        facts = self._birth.facts
        for advice, requests in (advise(taken) if taken else {}).items():
            message = (
                f"model '{facts['model']}' version {facts['version']}: instance {self.name} {text} "
                f"while it executed this request; {advice}"
            )
            self._say(self._runtime.fail, requests, Status.UNAVAILABLE, message)
        if untaken:
            self._say(self._runtime.requeue, untaken)

    def _say(self, tell: Callable[..., None], *what: Any) -> None:
        """A bug of ours in the answer to one request must not end the keeping of this instance."""
        try:
            tell(*what)
        except Exception as error:
            context = {"message": f"answer to a request of {self.name} lost", "exception": error}
            self._place.loop.call_exception_handler(context)

    async def _revive(self) -> None:
        while True:
            await asyncio.sleep(self._delay)
            self.restarts += 1
            if await self._started():
                return

    async def _started(self) -> bool:
        """Whether another worker could be started."""
        try:
            await self._start()
        except WorkerFailed as failure:
            self._not_started(failure.message, {"extra": {**self._extra(), "traceback": failure.traceback}})
            return False
        except Exception as error:  # our bug: it must not end the keeping of this instance
            self._not_started(f"unexpected {type(error).__name__}", {"extra": self._extra(), "exc_info": error})
            return False
        return True

    def _not_started(self, why: str, more: dict[str, Any]) -> None:
        self._delay = self._backoff.next_seconds(was_ready=False, lived_seconds=0)
        self._set(InstanceState.BROKEN, f"instance {self.name} does not come back: {why}")
        log.error(
            "instance %s could not be restarted: %s; next start in %g ms", self.name, why, self._delay * 1000, **more
        )

    def _set(self, state: InstanceState, reason: str) -> None:
        self.state = state
        self.reason = reason
        self._changed()

    def _extra(self) -> dict[str, Any]:
        return {"facts": self._birth.facts}


def close_link(link: LinkFace, worker: Worker) -> tuple[list[Any], list[Any]]:
    """The worker is over: see LinkFace.close.  What its process has open follows when that has ended."""
    unanswered = link.close(worker.lingers)
    worker.when_gone(link.process_ended)
    return unanswered


async def dismiss(worker: Worker, link: LinkFace, verdict: str) -> None:
    """End a worker that has nobody's request, and close its link when it is over, in limits.KILL_SECONDS_MAX at most.

    Whoever waits for that may be cancelled: the link is closed all the same, and not before.  verdict: Worker.kill's.
    """
    worker.kill(verdict)
    worker.ended.add_done_callback(lambda _: close_link(link, worker))
    await asyncio.wait({worker.ended})


async def _ends(worker: Worker, seconds: float) -> bool:
    done, _ = await asyncio.wait({worker.ended}, timeout=seconds)
    return bool(done)
