"""All models of a server and all processes that serve them.  Layer 4 (models)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tisfast import defaults, limits
from tisfast.config.model_config import LoadedConfig
from tisfast.engine.custom_metrics import CustomMetrics, FamilyReading
from tisfast.errors import TisError
from tisfast.models.copies import Copies, Served
from tisfast.models.draining import DrainingCopies
from tisfast.models.guest_models import GuestChecks, GuestModels
from tisfast.models.lifecycle import Lifecycle
from tisfast.models.loader import NOTHING_SHARED, LoadContext, SharedResources, load_versions
from tisfast.models.memory_budget import MemoryBudget, Sleeper
from tisfast.models.model_orders import ModelOrders
from tisfast.models.polling import Before, Polling, Tell, polling_of
from tisfast.models.served_ensemble import ServedEnsemble, load_ensemble
from tisfast.models.served_model import ServedModel
from tisfast.native.memory import now_ns
from tisfast.processes.control_directory import ControlDirectory
from tisfast.processes.control_socket import ControlSocket
from tisfast.processes.gpu_pool import GpuPool, LentMemory
from tisfast.processes.guest_directory import GuestDirectory
from tisfast.processes.guests import Guests
from tisfast.processes.link import Poller
from tisfast.processes.nurseries import Nurseries
from tisfast.processes.nursery_process import NurseryProcess
from tisfast.processes.pinned_pool import PinnedPool
from tisfast.processes.worker import Workplace
from tisfast.repo.links import LinkedFiles, link_files
from tisfast.repo.load_override import LoadOrder, find_overridden, remove_private
from tisfast.repo.load_plan import Found
from tisfast.repo.lookup import find, find_around, names_of
from tisfast.repo.model_names import Names, NamespacedNames
from tisfast.repo.scan import ScanOptions
from tisfast.repo.scan_result import ModelFailure, ModelSource, VersionSource

if TYPE_CHECKING:
    from tisfast.config.settings import RepositorySettings, WorkerSettings
    from tisfast.engine.core import Clock
    from tisfast.engine.registry import Registry

log = logging.getLogger("tisfast.models")
EVERYTHING = "*"
STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


def _anything(_model: ModelSource, _config: LoadedConfig) -> None:
    """No file is served as it lies."""


class Supervisor:
    """Owns what all models of a server share: control socket, nurseries, poller, watchdog; and their lifecycle."""

    def __init__(
        self,
        repository: RepositorySettings,
        workers: WorkerSettings,
        registry: Registry,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        commons: SharedResources = NOTHING_SHARED,
    ) -> None:
        self._repository = repository
        self._workers = workers
        self._registry = registry
        self._clock = clock
        self._loop = loop
        self._commons = commons
        self._looking = ScanOptions(
            auto_complete=repository.auto_complete,
            gpus=commons.placement.usable,
            config_name=repository.config_name,
            namespaces=repository.namespacing,
            leases=True,
            backends=repository.backends,
            allow_pickled=repository.allow_pickled,
        )
        self._linked: LinkedFiles | None = None  # of files that are served as they lie
        self._names = NamespacedNames(self._paths) if repository.namespacing else Names()
        self._nurseries = Nurseries(workers, loop)
        self._leaving = DrainingCopies(loop)
        self._copies = Copies(registry, self, self._leaving, repository.load_retries)
        self.lifecycle = Lifecycle(
            loop,
            registry,
            self._copies,
            self._find,
            self._give,
            lambda: names_of(self._paths, self._looking),
            explicit=repository.control_mode == "explicit",
            names=self._names,
        )
        self._found: dict[str, Found] = {}
        self._directory: ControlDirectory | None = None
        self._control: ControlSocket | None = None
        self._poller: Poller | None = None
        self._custom_metrics: CustomMetrics | None = None
        self._context: LoadContext | None = None
        self.pinned = PinnedPool(workers.pinned_pool_bytes)
        self._gpu_pool: GpuPool | None = None
        self._guest_directory: GuestDirectory | None = None
        self._guests: Guests | None = None
        self._guest_models: GuestModels | None = None
        self._budget: MemoryBudget | None = None
        self._tick: asyncio.TimerHandle | None = None

    # ---- what others ask

    @property
    def live(self) -> int:
        """Model versions that have workers."""
        return len(self.served)

    @property
    def served(self) -> list[Served]:
        """All loaded model versions, those on their way out included."""
        return [*self._serving, *self._leaving.models]

    @property
    def _serving(self) -> list[Served]:
        """Those that new requests find."""
        return [*self._copies.served, *(self._guest_models.served if self._guest_models is not None else ())]

    def restarts(self) -> list[tuple[str, str, int]]:
        """Model (its identity), version, and workers started in place of dead ones, for metrics."""
        signatures = [(served.runtime.signature, served.restarts) for served in self._serving]
        return [(signature.identity, signature.version, count) for signature, count in signatures]

    def set_verbose(self, level: int) -> None:
        """Tell every worker whether its model's verbose lines are wanted (log_verbose_level)."""
        for served in self.served:
            for instance in served.instances:
                instance.set_verbose(level)

    def readiness(self, name: str, version: str) -> Awaitable[str] | None:
        """The answer of the model version's own `is_ready`; None when it has none."""
        served = self._copies.of(name, version)
        if served is None and self._guest_models is not None:
            served = self._guest_models.of(name, version)
        return served.readiness() if isinstance(served, ServedModel) else None

    def custom_metrics(self) -> list[FamilyReading]:
        """Read the models' own metrics."""
        return list(self._custom_metrics.read()) if self._custom_metrics is not None else []

    def memory(self) -> list[tuple[str, str, dict[str, float]]]:
        """Model, version, and what the memory budget knows of it, for metrics; nothing without a budget."""
        readings = self._budget.readings() if self._budget is not None else []
        return [
            (each.runtime.signature.identity, each.runtime.signature.version, figures)
            for each, figures in readings
            if isinstance(each, ServedModel)
        ]

    def lent(self) -> list[LentMemory]:
        """GPU memory that is lent, for metrics."""
        return [] if self._gpu_pool is None else self._gpu_pool.lent()

    def load_seconds(self) -> list[tuple[str, str, float]]:
        """Model (its identity), version, and seconds that its loading took, for metrics."""
        signatures = [(served.runtime.signature, served.load_seconds) for served in self._serving]
        return [(signature.identity, signature.version, seconds) for signature, seconds in signatures]

    def inflight(self) -> list[tuple[str, int]]:
        """Model versions with requests queued or executing, and how many."""
        return [(served.title, served.unanswered) for served in self.served if served.unanswered]

    def sequences(self) -> int:
        """Sequences that have begun and are not over, of all models."""
        return sum(served.runtime.sequences for served in self.served if isinstance(served, ServedModel))

    # ---- life

    def keep_up(self, before: Before, tell: Tell) -> Polling | None:
        """The polling that the settings ask for, None when they ask for none.  After `open`."""
        return polling_of(self._repository, self._paths, self.lifecycle, time.monotonic, before, tell)

    def adopt(self, spawned: NurseryProcess) -> None:
        """Take over a nursery process that was started early."""
        self._nurseries.adopt(spawned)

    def open(self) -> None:
        """Make the control directory and socket.  Raises ConfigError for a --guest-directory that cannot be had."""
        if self._workers.guest_directory:
            self._guest_directory = GuestDirectory(Path(self._workers.guest_directory))
        self._directory = ControlDirectory()
        if self._repository.files:
            self._linked = link_files(self._repository.files, self._directory.links, self._repository.backends)
            self._looking = replace(self._looking, files=self._linked.models)
        self._control = ControlSocket(self._directory, self._loop)
        self._control.open()
        self._poller = Poller(self._clock, self._loop, self._workers.spin_us)
        self._custom_metrics = CustomMetrics(self._poller.cells)
        models = ModelOrders(self._registry, self.lifecycle, self._loop)
        self._gpu_pool = self._made_gpu_pool()
        self._context = LoadContext(
            Workplace(self._loop, self._control, self._custom_metrics, models, self._gpu_pool, self.pinned),
            self._poller,
            self._clock,
            self._workers,
            self._nurseries,
            asyncio.Semaphore(self._repository.load_concurrency),
            self._commons,
            self._registry,
            self._repository.default_max_batch_size,
            _anything if self._linked is None else self._linked.check_tensors,
        )
        self._watch()
        if self._workers.memory_budget:
            self._budget = MemoryBudget(self._workers.memory_budget, self._sleepers, self._loop, self._announce)
            self._budget.start()

    def _made_gpu_pool(self) -> GpuPool | None:
        if self._workers.cpu_only:
            return None
        pools = dict(self._workers.cuda_pools)
        return GpuPool(self._loop, self._commons.cuda, pools, self._commons.sharing)

    def find(self) -> list[str]:
        """Look through the repositories; returns the names of all models to load, good and bad.  Raises ConfigError."""
        given = self._repository.load_models if self.lifecycle.explicit else (EVERYTHING,)
        wanted = [each for name in given for each in self._names.lying(name)]
        around = find_around(self._paths, None if EVERYTHING in given else wanted, self._looking)
        for note in around.notes:
            log.info("%s", note)
        for name, found in around.found.items():
            for text in found.notes if isinstance(found, (ModelSource, ModelFailure)) else ():
                log.warning("%s", text, extra={"facts": {"model": name}})
        self._registry.know(around.names)
        self._found = self._with_files(around.found)
        return list(around.found)

    async def load_all(self, step: Callable[[str], None]) -> Collection[str]:
        """Load what `find` found, each model by itself; returns the names of those that failed.

        step: called with each name when it is done.
        """
        found, self._found = self._found, {}  # sources lease folders
        return await self.lifecycle.start(found, step)

    def welcome_guests(self) -> None:
        """Listen in --guest-directory, if there is one.  Raises ConfigError."""
        if self._guest_directory is None:
            return
        assert self._context is not None
        checks = GuestChecks(self._looking.gpus, self._repository.backends)
        models = GuestModels(self._context, self._registry, self.lifecycle, self._leaving, checks)
        self._guests = Guests(self._guest_directory, self._loop, models)
        self._guest_models = models
        self.lifecycle.why_not = models.why
        for name in self._workers.guest_models:
            self._registry.declare(name, "", "LOADING")

    async def stop(self, seconds: float) -> None:
        """Unload everything within `seconds`: workers that do not finalize in time are killed."""
        if self._budget is not None:
            await self._budget.close()
        await self.lifecycle.stop()
        served = self._copies.clear()
        await asyncio.gather(
            self._leaving.finish(seconds, STOPPING),
            *(self._unload(model, seconds) for model in served),
            self._see_guests_off(seconds),
        )

    async def _see_guests_off(self, seconds: float) -> None:
        if self._guests is not None and self._guest_models is not None:
            self._guests.refuse()
            await self._guest_models.stop(seconds, STOPPING)
            self._guests.close("the server is stopping")

    def kill_all(self) -> None:
        """End every process now, and leave no directory."""
        self._nurseries.kill()
        if self._guests is not None:
            self._guests.refuse()
        if self._directory is not None:
            self._directory.remove()

    async def close(self) -> None:
        """Give everything back.  After `stop`, or in place of it when nothing was loaded."""
        if self._tick is not None:
            self._tick.cancel()
        await self.stop(0)
        await self._nurseries.close()
        if self._poller is not None:
            self._poller.close()
        if self._control is not None:
            self._control.close()
        if self._guest_directory is not None:
            self._guest_directory.remove()
        if self._directory is not None:
            self._directory.remove()

    # ---- the Maker of copies

    async def load(self, source: ModelSource, versions: Sequence[VersionSource]) -> list[ServedModel]:
        """These versions of a model, or none."""
        assert self._context is not None
        try:
            return await load_versions(self._context, source, versions)
        except TisError as error:
            self._name_files(error)
            if source.private is not None:  # a folder of ours that is removed at once; what the call called the files
                private = f"{source.private}/"
                error.reword(lambda text: text.replace(private, ""))
            raise

    def join(self, source: ModelSource) -> list[ServedEnsemble]:
        """All versions of an ensemble."""
        return load_ensemble(source, self._registry, self._clock, self._commons.cache, self._commons.copies)

    def discard(self, source: ModelSource) -> None:
        """The folder of a load call's files, which may be large, is deleted in a thread."""
        if source.private is not None:
            self._loop.run_in_executor(None, remove_private, source)

    # ---- parts

    @property
    def _paths(self) -> list[Path]:
        links = [self._linked.repository] if self._linked is not None else []
        return [*map(Path, self._repository.paths), *links]

    def _find(self, names: Collection[str]) -> dict[str, Found]:
        return self._with_files(find(self._paths, names, self._looking))

    def _with_files(self, found: dict[str, Found]) -> dict[str, Found]:
        """The same, where errors name files that are served as they lie, not the links to them."""
        for each in found.values():
            for error in each.errors if isinstance(each, ModelFailure) else ():
                self._name_files(error)
        return found

    def _name_files(self, error: TisError) -> None:
        if self._linked is not None:
            error.reword(self._linked.named)

    def _give(self, order: LoadOrder) -> Found:
        assert self._directory is not None
        return find_overridden(order, self._paths, self._looking, self._directory.overrides)

    async def _unload(self, served: Served, seconds: float) -> None:
        signature = served.runtime.signature
        await served.stop(seconds, STOPPING)
        self._registry.remove(served.runtime)
        facts = {"model": signature.identity, "version": signature.version}
        log.info("successfully unloaded '%s' version %s", *facts.values(), extra={"facts": facts})

    def _sleepers(self) -> list[ServedModel]:
        return [served for served in self._copies.served if isinstance(served, ServedModel)]

    def _announce(self, sleeper: Sleeper, reason: str) -> None:
        """In the index: a sleeping model is ready, and says that it sleeps."""
        for served in self._sleepers():
            if served is sleeper:
                signature = served.runtime.signature
                self._registry.declare(signature.identity, signature.version, "READY", reason)

    def _watch(self) -> None:
        """Once a second or so: hung executions, and memory that idle models need not keep."""
        at = now_ns()
        served = self.served
        for each in served:
            each.look_for_hangs(at)
            each.look_for_rest(at)
        shortest = min((each.execution_seconds_max for each in served), default=defaults.EXECUTION_SECONDS_MAX)
        self._tick = self._loop.call_later(min(limits.WATCHDOG_SECONDS_MAX, shortest / 4), self._watch)
