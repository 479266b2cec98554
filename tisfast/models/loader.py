"""Load one model version: complete its configuration, start its instances, put its runtime together.

Layer 4 (models).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import orjson

from tisfast import limits
from tisfast.config.auto_complete import merge_completed
from tisfast.config.instance_groups import PlannedInstance
from tisfast.config.model_config import LoadedConfig, signature_fields
from tisfast.config.resources import thread_variables
from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.config.tensor_config import TensorConfig
from tisfast.engine.batching_strategy import Strategy, compile_strategy
from tisfast.engine.response_cache import LocalStore
from tisfast.engine.runtime import ModelRuntime
from tisfast.environments.environment import Environment
from tisfast.errors import TisError
from tisfast.models.backend_environment import backend_environment
from tisfast.models.beside import beside as beside_loop
from tisfast.models.caching import keep_answers, salt_of
from tisfast.models.claims import Claims
from tisfast.models.gpu_placement import Place, Placement, device_inputs, device_outputs
from tisfast.models.sequence_message import sequence_part
from tisfast.models.served_model import ServedModel
from tisfast.models.warm_up import WarmUp
from tisfast.native.cuda import Cuda
from tisfast.native.cuda_sharing import CudaSharing
from tisfast.native.memory import Arena, now_ns
from tisfast.native.row_arena import RowArena
from tisfast.processes import machine
from tisfast.processes.control_socket import Message
from tisfast.processes.deaths import Deaths
from tisfast.processes.instance import Instance, dismiss
from tisfast.processes.link import Poller, RingLink
from tisfast.processes.nurseries import Nurseries, NurseryUse
from tisfast.processes.nursery import Nursery
from tisfast.processes.timer import RuntimeTimer
from tisfast.processes.worker import Birth, Worker, WorkerFailed, Workplace
from tisfast.repo.labels import read_labels
from tisfast.repo.scan_result import ModelSource, VersionSource
from tisfast.repo.strategy_file import StrategyFile, read_strategy
from tisfast.wire.signature import ModelSignature

if TYPE_CHECKING:
    from tisfast.config.settings import WorkerSettings
    from tisfast.engine.core import Clock
    from tisfast.engine.rate_limiter import RateLimiter
    from tisfast.engine.registry import Registry
    from tisfast.engine.response_cache import RemoteStore
    from tisfast.executor import DaemonExecutor

log = logging.getLogger("tisfast.models")
T = TypeVar("T")
COMPLETION_ARENA_BYTES = 1 << 20
"""Arenas of a worker that only completes a configuration: it maps them like any worker, and uses nothing of them."""


@dataclass(frozen=True)
class Version:
    """One version to load."""

    model: ModelSource
    source: VersionSource

    @property
    def number(self) -> str:
        """The version number as text."""
        return str(self.source.number)


@dataclass(frozen=True)
class SharedResources:
    """The parts that all models of a server share.

    cache: where answers are kept; limiter: shares out what instance groups ask for (--rate-limit).  None: there is
    none.  placement: the GPUs.  copies: threads for what is long to copy in host memory;
    None: the loop's own.  cuda: the driver, made
    when it is first called.  sharing: what is known of CUDA IPC here.
    """

    cache: LocalStore | RemoteStore | None = None
    limiter: RateLimiter | None = None
    placement: Placement = field(default_factory=lambda: Placement(()))
    copies: DaemonExecutor | None = None
    cuda: Callable[[], Cuda] = Cuda
    sharing: CudaSharing = field(default_factory=CudaSharing)


NOTHING_SHARED = SharedResources()


@dataclass(frozen=True)
class LoadContext:
    """The parts that every load uses.  slots bounds the instances that may be loading at one time; registry: where the
    models are looked up that models call; default_max_batch_size: of completed configurations; check: raises
    ConfigError for a model that cannot be served by its completed configuration.
    """

    place: Workplace
    poller: Poller
    clock: Clock
    settings: WorkerSettings
    nurseries: Nurseries
    slots: asyncio.Semaphore
    commons: SharedResources
    registry: Registry
    default_max_batch_size: int
    check: Callable[[ModelSource, LoadedConfig], None]


async def load_versions(
    context: LoadContext, model: ModelSource, versions: Sequence[VersionSource]
) -> list[ServedModel]:
    """These versions of a model, or none.  Raises TisError."""
    served: list[ServedModel] = []

    async def load(version: Version) -> None:
        try:
            served.append(await load_version(context, version))
        except TisError as error:
            error.facts["version"] = version.number
            raise

    try:
        await gather(*(load(Version(model, source)) for source in versions))
    except BaseException:
        why = "another version of the model failed to load"
        await asyncio.gather(*(each.stop(limits.WORKER_STOP_SECONDS_MAX, why) for each in served))
        raise
    return served


async def load_version(context: LoadContext, version: Version) -> ServedModel:
    """One version, loaded and ready, or nothing of it.  Raises TisError."""
    try:
        return await _load_in(context, version, version.model.environment)
    except WorkerFailed as error:
        environment = await asyncio.to_thread(backend_environment, context.settings.environments, version.model, error)
        if environment is None:
            raise
        log.info(
            "model '%s': %s; it is loaded in the environment of backend '%s' (%s)",
            version.model.name, error.message.partition("; ")[0], version.model.config.backend, environment,
            extra={"facts": {"model": version.model.name, "version": version.number}},
        )  # fmt: skip
    return await _load_in(context, version, environment)


async def _load_in(context: LoadContext, version: Version, environment: Environment | None) -> ServedModel:
    model = version.model
    began_ns = now_ns()
    imports = model.config.backends.imports_of(model.config.backend)
    host = await context.nurseries.use(environment, model.name, imports)
    try:
        config = await _completed(context, version, host.nursery) if model.may_complete else model.config
        context.check(model, config)
        beside = await asyncio.to_thread(_read_beside, context, version, config)
        births = _births(context, config, host)
        async with context.commons.placement.placing(config.name, config.instances) as places:
            served = await assemble(context, version, config, beside, births, host, places)
            _say_loading(version, config, host.nursery)
            try:
                await gather(*(_load_instance(context, instance) for instance in served.instances))
            except BaseException:
                await served.stop(limits.WORKER_STOP_SECONDS_MAX, "the model failed to load")
                raise
    except BaseException:
        host.leave()
        raise
    await host.say_what_is_missing(model.name)
    served.load_seconds = (now_ns() - began_ns) / 1e9
    served.loaded()
    return served


async def gather(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Run all; when one fails, cancel the others, await their end, and raise the first failure."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _load_instance(context: LoadContext, instance: Instance) -> None:
    async with context.slots:
        await instance.load()


async def _completed(context: LoadContext, version: Version, nursery: Nursery) -> LoadedConfig:
    """The configuration after its backend has said what the model is."""
    config = version.model.config
    name = f"{config.name}_{version.number}_complete"
    places = await asyncio.to_thread(_places, version, context.settings)
    load = _load(version, config, "complete", config.instances[0], places)
    own = config.backends.settings_of(config.backend).get("default-max-batch-size")
    load["model"]["default_max_batch_size"] = context.default_max_batch_size if own is None else int(own)
    birth = Birth(
        name=name,
        load=load,
        nursery=nursery,
        planned=config.instances[0],
        load_seconds_max=context.settings.load_seconds_max,
    )
    signature = ModelSignature(config.name, version.number, 0, False, [], [])
    arena = Arena(name, COMPLETION_ARENA_BYTES, COMPLETION_ARENA_BYTES)
    runtime = ModelRuntime(signature, arena, SchedulerSettings(), context.clock, {})
    async with context.slots:
        link = RingLink(name, runtime, context.poller, COMPLETION_ARENA_BYTES)
        worker = Worker(birth, context.place)
        try:
            answer = await worker.start(link.fds)
        finally:
            await dismiss(worker, link, "has completed the configuration")
    return merge_completed(config, str(answer.get("config", "")))


class WorkerHost(Protocol):
    """The host of a model version's workers: nurseries.NurseryUse, or a guest."""

    def leave(self) -> None:
        """The model version has no worker any more.  Once is enough; twice does nothing."""


Births: TypeAlias = Callable[[PlannedInstance, Place, Message], Birth]
"""How a worker is born: as planned, where it goes, and with the message that tells it what it is."""


def _births(context: LoadContext, config: LoadedConfig, host: NurseryUse) -> Births:
    """Forked by the nursery that the model lodges with."""
    placement, told, deaths = context.commons.placement, set[str](), Deaths()
    threads = _threads(config)

    def birth(planned: PlannedInstance, place: Place, load: Message) -> Birth:
        return Birth(
            name=planned.name,
            load=load,
            nursery=host.nursery,
            planned=planned,
            env={**placement.variables(place.instance), **thread_variables(config.resources)},
            threads=threads,
            loading=place.loading,
            load_seconds_max=context.settings.load_seconds_max,
            told=told,
            deaths=deaths,
        )

    return birth


def _threads(config: LoadedConfig) -> int:
    """Threads of each instance."""
    return config.resources.cpu_threads or machine.threads_share(len(config.instances))


def _say_loading(version: Version, config: LoadedConfig, nursery: Nursery) -> None:
    log.info(
        "loading %s:%s: %d instance(s), %d thread(s) each, under %s",
        config.name, version.number, len(config.instances), _threads(config), nursery.interpreter,
        extra={"facts": {"model": config.name, "version": version.number}},
    )  # fmt: skip


async def assemble(  # noqa: PLR0913, PLR0917 - its parts
    context: LoadContext,
    version: Version,
    config: LoadedConfig,
    beside: ModelExtras,
    births: Births,
    host: WorkerHost,
    places: Sequence[Place],
) -> ServedModel:
    """A model version with all that it is made of; its instances are still to be loaded, there.  Raises TisError."""
    runtime = _runtime(context, version, config, beside)
    arena_bytes = runtime.arena.nbytes
    timer = RuntimeTimer(runtime, context.place.loop, now_ns)
    seconds_max = config.resources.execution_seconds_max or context.settings.execution_seconds_max
    warm_up = None
    if config.warm_up:  # reads its samples
        warm_up = await asyncio.to_thread(WarmUp, runtime, config.warm_up, version.model.folder, seconds_max)
    placed = dict(zip(config.instances, (place.instance for place in places), strict=True))
    claims = Claims(context.commons.limiter, runtime, tuple(placed.values()))
    strict = config.resources.strict_outputs
    strict_outputs = context.settings.strict_outputs if strict is None else strict

    @contextlib.asynccontextmanager
    async def make(served: ServedModel, planned: Sequence[PlannedInstance]) -> AsyncIterator[list[Instance]]:
        async with context.commons.placement.placing(config.name, planned) as added:
            pairs = list(zip(planned, added, strict=True))
            placed.update((each, place.instance) for each, place in pairs)
            yield [make_one(served, *each) for each in pairs]

    def moved(planned: Iterable[PlannedInstance]) -> None:
        there, signature = set(planned), runtime.signature
        for gone in [each for each in placed if each not in there]:
            del placed[gone]  # it is placed anew when it comes back
        where = list(placed.values())
        signature.device_inputs = signature.device_inputs_meant = device_inputs(config, where)
        signature.device_outputs = device_outputs(config, where)

    def make_one(served: ServedModel, planned: PlannedInstance, place: Place) -> Instance:
        load = _load(
            version, config, "serve", planned, beside.places,
            strict_outputs=strict_outputs, spin_us=context.settings.spin_us,
        )  # fmt: skip

        def make_link() -> RingLink:
            link = RingLink(planned.name, runtime, context.poller, arena_bytes, context.registry)
            link.claim = claims.of(planned.name)
            return link

        birth = births(planned, place, load)
        return Instance(birth, context.place, runtime, make_link, served.changed, warm_up)

    served = ServedModel(
        runtime, timer, seconds_max, claims, make, partial(_load_instance, context), host=host, moved=moved
    )
    served.keep_awake = config.resources.keep_awake
    served.instances = [make_one(served, *each) for each in zip(config.instances, places, strict=True)]
    moved(config.instances)
    return served


def _runtime(context: LoadContext, version: Version, config: LoadedConfig, beside: ModelExtras) -> ModelRuntime:
    inputs, outputs = signature_fields(config)
    use_bytes = beside.places.arena_use_bytes
    arena_bytes = min(use_bytes * limits.ARENA_CAP_FACTOR, limits.ARENA_CAP_BYTES_MAX)
    labelled = [(*field[:3], labels) for field, labels in zip(outputs, beside.labels, strict=True)]
    signature = ModelSignature(config.name, version.number, config.max_batch_size, config.decoupled, inputs, labelled)
    signature.namespace = version.model.namespace
    label = f"tisfast-in-{config.name}"
    batches = config.scheduler.dynamic and config.max_batch_size > 1 and not config.decoupled
    arena = (RowArena if batches else Arena)(label, arena_bytes, use_bytes)
    strategy = _strategy(version, config, beside.strategy)
    scheduler = replace(config.scheduler, **asdict(context.settings.hooks))
    runtime = ModelRuntime(signature, arena, scheduler, context.clock, config.as_dict, strategy)
    if context.commons.copies is not None:
        runtime.beside = partial(beside_loop, context.commons.copies)
    keep_answers(runtime, context.commons.cache, config, beside.salt, context.commons.copies)
    return runtime


class VersionFolders(NamedTuple):
    """Folders of a version without links, and the largest size of its arenas.

    cache: where its backend keeps files that it makes of the model's, "" for nowhere.
    """

    repository: str
    version_dir: str
    arena_use_bytes: int
    cache: str


def _places(version: Version, settings: WorkerSettings) -> VersionFolders:
    """In a thread: it asks the file system for each part of a path."""
    repository, version_dir = (str(folder.resolve()) for folder in (version.model.folder, version.source.folder))
    return VersionFolders(repository, version_dir, machine.arena_use_bytes(), settings.environments.made_files)


class ModelExtras(NamedTuple):
    """Files beside a model's code.  labels: of each output; strategy: of batching; salt: of its cache's keys."""

    labels: list[tuple[bytes, ...]]
    strategy: StrategyFile | None
    salt: bytes
    places: VersionFolders


def _read_beside(context: LoadContext, version: Version, config: LoadedConfig) -> ModelExtras:
    """In a thread: the loop does not wait for disks.  Raises ConfigError."""
    folder = version.model.folder
    return ModelExtras(
        [read_labels(folder, tensor.label_filename) for tensor in config.outputs],
        read_strategy(config, folder),
        salt_of(context.commons.cache, config, version.number, version.source.folder),
        _places(version, context.settings),
    )


def _strategy(version: Version, config: LoadedConfig, file: StrategyFile | None) -> Strategy | None:
    """The model's custom batching strategy; what it raises is logged once, with its traceback."""
    if file is None:
        return None
    strategy = compile_strategy(file.text, str(file.path))

    def failed(error: Exception) -> None:
        strategy.failed = None
        log.error(
            "batching strategy %s of model '%s' raised %r; the batch goes without further requests, as it will "
            "whenever that happens again", file.path, config.name, error, exc_info=error,
            extra={"facts": {"model": config.name, "version": version.number}},
        )  # fmt: skip

    strategy.failed = failed
    return strategy


def _load(
    version: Version,
    config: LoadedConfig,
    role: str,
    instance: PlannedInstance,
    places: VersionFolders,
    **settings: object,
) -> dict[str, Any]:
    """WIRE.md's load message.  settings: more of it, of which each has a default.

    device_id is 0 for GPUs too: the worker sees one GPU only (CUDA_VISIBLE_DEVICES), and CUDA counts it as 0.
    """
    model = {
        "name": config.name,
        "version": version.number,
        "repository": places.repository,
        "version_dir": places.version_dir,
        "file": config.default_model_filename,
        "backend": config.backend,
        **config.backends.told_to_workers(config.backend),
        "instance": instance.name,
        "kind": instance.kind,
        "device_id": 0,
        "config": orjson.dumps(config.as_dict).decode(),
        "decoupled": config.decoupled,
        "max_batch_size": config.max_batch_size,
        # A configuration that is still to be completed may lack types and shapes; nobody asks for them then.
        "inputs": [_tensor(tensor) for tensor in config.inputs] if role == "serve" else [],
        "outputs": [_tensor(tensor) for tensor in config.outputs] if role == "serve" else [],
        "log_verbose": int(log.isEnabledFor(logging.DEBUG)),
        "output_bytes_max": places.arena_use_bytes,
        "retry": config.resources.retry,
        "cache": places.cache,
        **settings,
    }
    if time.time() - version.model.snapshot.newest(".py") <= limits.BYTECODE_SECONDS:
        model["saved_lately"] = True
    if role == "serve" and config.scheduler.sequence is not None:
        model.update(sequence_part(config.scheduler.sequence, version.model.folder))
    return {"t": "load", "role": role, "model": model}


def _tensor(tensor: TensorConfig) -> list[Any]:
    return [tensor.name, tensor.dtype, tensor.dims, tensor.worker_dims if tensor.reshaped else None]
