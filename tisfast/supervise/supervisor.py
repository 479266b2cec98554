"""All models of a server and all processes that serve them.  Layer 4 (supervise)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tisfast import limits
from tisfast.config.report import ConfigErrors
from tisfast.engine.custom_metrics import CustomMetrics, FamilyReading
from tisfast.errors import TisError
from tisfast.native.memory import now_ns
from tisfast.repo.dependencies import dependencies, impossible
from tisfast.repo.scan import Looking, scan
from tisfast.repo.source import ModelFailure, ModelSource, Scan
from tisfast.supervise import machine
from tisfast.supervise.control import Control
from tisfast.supervise.directory import ControlDirectory
from tisfast.supervise.ensemble import ServedEnsemble, load_ensemble
from tisfast.supervise.link import Poller
from tisfast.supervise.loader import NOTHING_SHARED, Commons, Means, gather, load_model
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
        commons: Commons = NOTHING_SHARED,
    ) -> None:
        self._repository = repository
        self._workers = workers
        self._registry = registry
        self._clock = clock
        self._loop = loop
        self._commons = commons
        self._gpus = () if workers.cpu_only else machine.gpus(workers.cuda_visible)
        self._nurseries: dict[str, Nursery] = {}
        self._served: list[ServedModel | ServedEnsemble] = []
        self._settled: dict[str, asyncio.Event] = {}
        self._scan = Scan((), ())
        self._directory: ControlDirectory | None = None
        self._control: Control | None = None
        self._poller: Poller | None = None
        self._custom_metrics: CustomMetrics | None = None
        self._tick: asyncio.TimerHandle | None = None

    @property
    def live(self) -> int:
        """Model versions that have workers."""
        return len(self._served)

    @property
    def served(self) -> list[ServedModel | ServedEnsemble]:
        """All loaded model versions."""
        return self._served

    def restarts(self) -> list[tuple[str, str, int]]:
        """Model, version, and workers started in place of dead ones, for metrics."""
        signatures = [(served.runtime.signature, served.restarts) for served in self._served]
        return [(signature.name, signature.version, count) for signature, count in signatures]

    def set_verbose(self, level: int) -> None:
        """Tell every worker whether its model's verbose lines are wanted (log_verbose_level)."""
        for served in self._served:
            for instance in served.instances:
                instance.set_verbose(level)

    def readiness(self, name: str, version: str) -> Awaitable[str] | None:
        """Row 16.06: what the model version's own `is_ready` says; None when it has none."""
        for served in self._served:
            signature = served.runtime.signature
            if isinstance(served, ServedModel) and (signature.name, signature.version) == (name, version):
                return served.readiness()
        return None

    def custom_metrics(self) -> list[FamilyReading]:
        """What the models' own metrics say now."""
        return list(self._custom_metrics.read()) if self._custom_metrics is not None else []

    def load_seconds(self) -> list[tuple[str, str, float]]:
        """Model, version, and seconds that its loading took, for metrics."""
        signatures = [(served.runtime.signature, served.load_seconds) for served in self._served]
        return [(signature.name, signature.version, seconds) for signature, seconds in signatures]

    def adopt(self, spawned: NurseryProcess) -> None:
        """Take over a nursery process that was started early."""
        self._nurseries[spawned.interpreter] = Nursery(spawned.interpreter, self._loop, spawned)

    def open(self) -> None:
        """Make the control directory and socket."""
        self._directory = ControlDirectory()
        self._control = Control(self._directory, self._loop)
        self._control.open()
        self._poller = Poller(self._clock, self._loop)
        self._custom_metrics = CustomMetrics(self._poller.bell)
        self._watch()

    def find(self) -> list[str]:
        """Look through the repositories; returns the names of all models found, good and bad.  Raises ConfigError."""
        looking = Looking(auto_complete=self._repository.auto_complete, gpus=self._gpus)
        self._scan = scan([Path(path) for path in self._repository.paths], looking)
        for note in self._scan.notes:
            log.info("%s", note)
        everything: list[ModelSource | ModelFailure] = [*self._scan.models, *self._scan.failures]
        for found in everything:
            for note in found.notes:
                log.warning("%s", note, extra={"facts": {"model": found.name}})
        for model in self._scan.models:
            for version in model.versions:
                self._registry.declare(model.name, str(version.number), "LOADING")
        return [found.name for found in everything]

    async def load_all(self, step: Callable[[str], None]) -> None:
        """Load what `find` found; each model by itself.  step: called with each name when it is done."""
        assert self._control is not None and self._poller is not None and self._custom_metrics is not None
        slots = asyncio.Semaphore(self._repository.load_concurrency)
        place = Workplace(self._loop, self._control, self._custom_metrics, self._registry)
        means = Means(
            place,
            self._poller,
            self._clock,
            self._workers,
            self._nursery,
            slots,
            self._commons,
            self._registry,
        )
        for failure in self._scan.failures:
            self._failed(failure.name, [""], ConfigErrors(failure.errors))
            step(failure.name)
        refused = impossible(self._scan.models, self._scan.failures)
        self._settled = {model.name: asyncio.Event() for model in self._scan.models}

        async def load(model: ModelSource) -> None:
            if model.name in refused:
                self._failed(model.name, [str(version.number) for version in model.versions], refused[model.name])
            elif model.config.ensemble is not None:
                await self._load_ensemble(model)
            else:
                await self._load(means, model)
            self._settled[model.name].set()
            step(model.name)

        await gather(*(load(model) for model in self._scan.models))

    async def _load_ensemble(self, model: ModelSource) -> None:
        """After the models of its steps, whose failure is then its own."""
        for name in dependencies(model):
            await self._settled[name].wait()
        try:
            served = load_ensemble(model, self._registry, self._clock, self._commons.cache)
        except TisError as error:
            self._failed(model.name, [str(version.number) for version in model.versions], error)
            return
        self._loaded(model.name, served)

    def _loaded(self, name: str, served: Sequence[ServedModel | ServedEnsemble]) -> None:
        self._served += served
        for each in served:
            self._registry.add(each.runtime)
        log.info("successfully loaded '%s'", name, extra={"facts": {"model": name}})

    async def _load(self, means: Means, model: ModelSource) -> None:
        numbers = [str(version.number) for version in model.versions]
        for attempt in range(self._repository.load_retries + 1):
            try:
                served = await load_model(means, model)
            except TisError as error:
                self._failed(model.name, numbers, error)
                if attempt < self._repository.load_retries:
                    log.info("loading '%s' again (--model-load-retry-count)", model.name)
                continue
            self._loaded(model.name, served)
            break

    def _failed(self, name: str, versions: list[str], error: TisError) -> None:
        reason = f"{STATUS_CODES[error.status].text}: {error}"
        for version in versions:
            self._registry.declare(name, version, "UNAVAILABLE", reason)
        about = f" version {', '.join(versions)}" if any(versions) else ""
        traceback = error.traceback if isinstance(error, WorkerFailed) else ""
        log.error("failed to load '%s'%s: %s", name, about, reason,
                  extra={"facts": {"model": name}, "traceback": traceback})  # fmt: skip

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

    async def _unload(self, served: ServedModel | ServedEnsemble, seconds: float) -> None:
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
