"""Load one model version: complete its configuration, start its instances, put its runtime together.

Layer 4 (supervise).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson

from tisfast import limits
from tisfast.config.complete import merge_completed
from tisfast.config.instances import Instance as PlannedInstance
from tisfast.config.model_config import LoadedConfig, signature_fields
from tisfast.config.resources import thread_variables
from tisfast.config.scheduler import SchedulerSettings
from tisfast.config.tensors import TensorConfig
from tisfast.engine.cache import LocalStore
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.strategy import Strategy, compile_strategy
from tisfast.errors import TisError
from tisfast.native.memory import Arena, now_ns
from tisfast.native.rows import RowArena
from tisfast.repo.labels import read_labels
from tisfast.repo.source import ModelSource, VersionSource
from tisfast.repo.strategy import StrategyFile, read_strategy
from tisfast.supervise import machine
from tisfast.supervise.caching import Store, keep_answers, salt_of
from tisfast.supervise.claims import Claims
from tisfast.supervise.instance import Instance
from tisfast.supervise.link import Poller, RingLink
from tisfast.supervise.model import ServedModel
from tisfast.supervise.nurseries import Lodging, Nurseries
from tisfast.supervise.nursery import Nursery
from tisfast.supervise.placement import Placement
from tisfast.supervise.sequences import sequence_part
from tisfast.supervise.timer import RuntimeTimer
from tisfast.supervise.warm_up import WarmUp
from tisfast.supervise.worker import Birth, Worker, Workplace
from tisfast.wire.signature import ModelSignature

if TYPE_CHECKING:
    from tisfast.config.settings import WorkerSettings
    from tisfast.engine.cache import RemoteStore
    from tisfast.engine.core import Clock
    from tisfast.engine.rate_limiter import RateLimiter
    from tisfast.engine.registry import Registry

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
        """As it travels: text."""
        return str(self.source.number)


@dataclass(frozen=True)
class Commons:
    """What all models of a server share.

    cache: where answers are kept; limiter: shares out what instance groups ask for (--rate-limit).  None: there is
    none.  placement: the GPUs.
    """

    cache: LocalStore | RemoteStore | None = None
    limiter: RateLimiter | None = None
    placement: Placement = field(default_factory=lambda: Placement(()))


NOTHING_SHARED = Commons()


@dataclass(frozen=True)
class Means:
    """What every load uses.  slots bounds the instances that may be loading at one time; registry: where the models are
    looked up that models call.
    """

    place: Workplace
    poller: Poller
    clock: Clock
    settings: WorkerSettings
    nurseries: Nurseries
    slots: asyncio.Semaphore
    commons: Commons
    registry: Registry


async def load_versions(means: Means, model: ModelSource, versions: Sequence[VersionSource]) -> list[ServedModel]:
    """These versions of a model, or none (row 14.05).  Raises TisError."""
    served: list[ServedModel] = []

    async def load(version: Version) -> None:
        try:
            served.append(await load_version(means, version))
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


async def load_version(means: Means, version: Version) -> ServedModel:
    """One version, loaded and ready, or nothing of it.  Raises TisError."""
    model = version.model
    began_ns = now_ns()
    lodging = await means.nurseries.lodge(model.environment, model.name)
    try:
        config = await _completed(means, version, lodging.nursery) if model.may_complete else model.config
        served = await _served(means, version, config, lodging)
    except BaseException:
        lodging.leave()
        raise
    try:
        await gather(*(_load_instance(means, instance) for instance in served.instances))
    except BaseException:
        await served.stop(limits.WORKER_STOP_SECONDS_MAX, "the model failed to load")
        raise
    await lodging.say_what_is_missing(model.name)
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


async def _load_instance(means: Means, instance: Instance) -> None:
    async with means.slots:
        await instance.load()


async def _completed(means: Means, version: Version, nursery: Nursery) -> LoadedConfig:
    """The configuration after the model's own auto_complete_config."""
    config = version.model.config
    name = f"{config.name}_{version.number}_complete"
    birth = Birth(
        name=name,
        load=_load(version, config, "complete", config.instances[0]),
        nursery=nursery,
        planned=config.instances[0],
        load_seconds_max=means.settings.load_seconds_max,
    )
    signature = ModelSignature(config.name, version.number, 0, False, [], [])
    arena = Arena(name, COMPLETION_ARENA_BYTES, COMPLETION_ARENA_BYTES)
    runtime = ModelRuntime(signature, arena, SchedulerSettings(), means.clock, {})
    async with means.slots:
        link = RingLink(name, runtime, means.poller, COMPLETION_ARENA_BYTES)
        worker = Worker(birth, means.place)
        try:
            answer = await worker.start(link.fds)
        finally:
            worker.kill("has completed the configuration")
            link.close()
            await asyncio.wait({worker.ended}, timeout=limits.KILL_SECONDS_MAX)
    return merge_completed(config, str(answer.get("config", "")))


async def _served(means: Means, version: Version, config: LoadedConfig, lodging: Lodging) -> ServedModel:
    use_bytes = machine.arena_use_bytes()
    arena_bytes = use_bytes * limits.ARENA_CAP_FACTOR
    inputs, outputs = signature_fields(config)
    folder = version.model.folder
    beside = await asyncio.to_thread(_read_beside, version, config, means.commons.cache)
    labelled = [(*field[:3], labels) for field, labels in zip(outputs, beside.labels, strict=True)]
    signature = ModelSignature(config.name, version.number, config.max_batch_size, config.decoupled, inputs, labelled)
    signature.namespace = version.model.namespace
    label = f"tisfast-in-{config.name}"
    batches = config.scheduler.dynamic and config.max_batch_size > 1 and not config.decoupled
    arena = (RowArena if batches else Arena)(label, arena_bytes, use_bytes)
    strategy = _strategy(version, config, beside.strategy)
    runtime = ModelRuntime(signature, arena, config.scheduler, means.clock, config.as_dict, strategy)
    keep_answers(runtime, means.commons.cache, config, beside.salt)
    timer = RuntimeTimer(runtime, means.place.loop, now_ns)
    seconds_max = config.resources.execution_seconds_max or means.settings.execution_seconds_max
    warm_up = None
    if config.warm_up:  # reads its samples
        warm_up = await asyncio.to_thread(WarmUp, runtime, config.warm_up, folder, seconds_max)
    placement = means.commons.placement
    placed = dict(zip(config.instances, placement.place(config.name, config.instances), strict=True))
    claims = Claims(means.commons.limiter, runtime, tuple(placed.values()))
    nursery = lodging.nursery
    threads = config.resources.cpu_threads or machine.threads_share(len(config.instances))
    log.info(
        "loading %s:%s: %d instance(s), %d thread(s) each, under %s",
        config.name, version.number, len(config.instances), threads, nursery.interpreter,
        extra={"facts": {"model": config.name, "version": version.number}},
    )  # fmt: skip

    def make(served: ServedModel, planned: PlannedInstance) -> Instance:
        place = placed.get(planned) or placement.place(config.name, [planned])[0]
        birth = Birth(
            name=planned.name,
            load=_load(version, config, "serve", planned),
            nursery=nursery,
            planned=planned,
            env={**placement.variables(place), **thread_variables(config.resources)},
            threads=threads,
            loading=partial(placement.loading, place),
            load_seconds_max=means.settings.load_seconds_max,
        )

        def make_link() -> RingLink:
            link = RingLink(planned.name, runtime, means.poller, arena_bytes, means.registry)
            link.claim = claims.of(planned.name)
            return link

        return Instance(birth, means.place, runtime, make_link, served.changed, warm_up)

    served = ServedModel(runtime, timer, seconds_max, claims, make, partial(_load_instance, means), lodging=lodging)
    served.keep_awake = config.resources.keep_awake
    served.instances = [make(served, planned) for planned in config.instances]
    return served


class Beside(NamedTuple):
    """What lies beside a model's code.  labels: of each output; strategy: of batching; salt: of its cache's keys."""

    labels: list[tuple[bytes, ...]]
    strategy: StrategyFile | None
    salt: bytes


def _read_beside(version: Version, config: LoadedConfig, cache: Store | None) -> Beside:
    """In a thread: the loop does not wait for disks.  Raises ConfigError."""
    folder = version.model.folder
    return Beside(
        [read_labels(folder, tensor.label_filename) for tensor in config.outputs],
        read_strategy(config, folder),
        salt_of(cache, config, version.number, version.source.folder),
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


def _load(version: Version, config: LoadedConfig, role: str, instance: PlannedInstance) -> dict[str, Any]:
    """WIRE.md's load message.

    device_id is 0 for GPUs too: the worker sees one GPU only (CUDA_VISIBLE_DEVICES), and CUDA counts it as 0.
    """
    model = {
        "name": config.name,
        "version": version.number,
        "repository": str(version.model.folder.resolve()),
        "version_dir": str(version.source.folder.resolve()),
        "file": version.source.file.name,
        "instance": instance.name,
        "kind": instance.kind,
        "device_id": 0,
        "config": orjson.dumps(config.as_dict).decode(),
        "decoupled": config.decoupled,
        "max_batch_size": config.max_batch_size,
        # A configuration that is still to be completed may lack types and shapes; nobody asks for them then.
        "inputs": [_tensor(tensor) for tensor in config.inputs] if role == "serve" else [],
        "outputs": [_tensor(tensor) for tensor in config.outputs] if role == "serve" else [],
        "spin_us": limits.SPIN_US,
        "log_verbose": int(log.isEnabledFor(logging.DEBUG)),
        "output_bytes_max": machine.arena_use_bytes(),
        "retry": config.resources.retry,
    }
    if time.time() - version.model.snapshot.newest(".py") <= limits.BYTECODE_SECONDS:
        model["saved_lately"] = True
    if role == "serve" and config.scheduler.sequence is not None:
        model.update(sequence_part(config.scheduler.sequence, version.model.folder))
    return {"t": "load", "role": role, "model": model}


def _tensor(tensor: TensorConfig) -> list[Any]:
    return [tensor.name, tensor.dtype, tensor.dims, tensor.worker_dims if tensor.reshaped else None]
