"""All models of a server and all processes that serve them.  Layer 4 (supervise)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tisfast import limits
from tisfast.errors import TisError
from tisfast.native.memory import now_ns
from tisfast.supervise import machine
from tisfast.supervise.control import Control
from tisfast.supervise.directory import ControlDirectory
from tisfast.supervise.link import Poller
from tisfast.supervise.loader import Means, gather, load_version
from tisfast.supervise.model import ServedModel
from tisfast.supervise.nursery import Nursery
from tisfast.supervise.spawn import NurseryProcess
from tisfast.supervise.worker import WorkerFailed, Workplace
from tisfast.types import STATUS_CODES

if TYPE_CHECKING:
    from tisfast.config.settings import RepositorySettings, WorkerSettings
    from tisfast.engine.core import Clock
    from tisfast.engine.registry import Registry

log = logging.getLogger("tisfast.models")
STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


class Supervisor:
    """Finds, loads, watches and stops the models of a server."""

    def __init__(
        self,
        repository: RepositorySettings,
        workers: WorkerSettings,
        registry: Registry,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._repository = repository
        self._workers = workers
        self._registry = registry
        self._clock = clock
        self._loop = loop
        self._gpus = () if workers.cpu_only else machine.gpus(workers.cuda_visible)
        self._nurseries: dict[str, Nursery] = {}
        self._served: list[ServedModel] = []
        self._directory: ControlDirectory | None = None
        self._control: Control | None = None
        self._poller: Poller | None = None
        self._tick: asyncio.TimerHandle | None = None

    @property
    def live(self) -> int:
        """Model versions that have workers."""
        return len(self._served)

    @property
    def served(self) -> list[ServedModel]:
        """All loaded model versions, for metrics."""
        return self._served

    def adopt(self, spawned: NurseryProcess) -> None:
        """Take over a nursery process that was started early."""
        self._nurseries[spawned.interpreter] = Nursery(spawned.interpreter, self._loop, spawned)

    def open(self) -> None:
        """Make the control directory and socket."""
        self._directory = ControlDirectory()
        self._control = Control(self._directory, self._loop)
        self._control.open()
        self._poller = Poller(self._clock, self._loop)
        self._watch()

    def inflight(self) -> list[tuple[str, int]]:
        """Model versions with requests queued or executing, and how many."""
        return [(served.title, served.unanswered) for served in self._served if served.unanswered]

    async def stop(self, seconds: float) -> None:
        """Unload everything within `seconds`: workers that do not finalize in time are killed."""
        served, self._served = self._served, []
        await asyncio.gather(*(self._unload(model, seconds) for model in served))

    def kill_all(self) -> None:
        """End every process now, and leave no directory."""
        for nursery in self._nurseries.values():
            nursery.close()
        if self._directory is not None:
            self._directory.remove()

    async def close(self) -> None:
        """Give everything back.  After `stop`, or in place of it when nothing was loaded."""
        if self._tick is not None:
            self._tick.cancel()
        await self.stop(0)
        for nursery in self._nurseries.values():
            nursery.close()
        if self._poller is not None:
            self._poller.close()
        if self._control is not None:
            self._control.close()
        if self._directory is not None:
            self._directory.remove()

    async def _unload(self, served: ServedModel, seconds: float) -> None:
        await served.stop(seconds, STOPPING)
        name, version = served.runtime.signature.name, served.runtime.signature.version
        self._registry.remove(served.runtime)
        log.info(
            "successfully unloaded '%s' version %s", name, version, extra={"facts": {"model": name, "version": version}}
        )

    def _nursery(self, interpreter: str) -> Nursery:
        if interpreter not in self._nurseries:
            self._nurseries[interpreter] = Nursery(interpreter, self._loop)
        return self._nurseries[interpreter]

    def _watch(self) -> None:
        """Once a second or so: hung executions, and memory that idle models need not keep."""
        at = now_ns()
        for served in self._served:
            served.look_for_hangs(at)
            served.look_for_rest(at)
        shortest = min((served.execution_seconds_max for served in self._served), default=limits.EXECUTION_SECONDS_MAX)
        self._tick = self._loop.call_later(min(limits.WATCHDOG_SECONDS_MAX, shortest / 4), self._watch)
