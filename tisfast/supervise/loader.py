"""Load one model version: complete its configuration, start its instances, put its runtime together.

Layer 4 (supervise).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from tisfast import limits
from tisfast.config.complete import merge_completed
from tisfast.config.instances import Instance as PlannedInstance
from tisfast.config.model_config import LoadedConfig, signature_fields
from tisfast.config.scheduler import SchedulerSettings
from tisfast.config.tensors import TensorConfig
from tisfast.engine.cache import LocalStore
from tisfast.engine.runtime import ModelRuntime
from tisfast.engine.strategy import Strategy, compile_strategy
from tisfast.errors import ConfigError
from tisfast.native.memory import Arena, now_ns
from tisfast.native.rows import RowArena
from tisfast.repo.labels import read_labels
from tisfast.repo.source import ModelSource, VersionSource
from tisfast.repo.strategy import read_strategy
from tisfast.supervise import machine
from tisfast.supervise.caching import keep_answers
from tisfast.supervise.claims import Claims
from tisfast.supervise.instance import Instance
from tisfast.supervise.link import Poller, RingLink
from tisfast.supervise.model import ServedModel
from tisfast.supervise.nursery import Nursery
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
TIMEOUT_KEY = "EXECUTION_TIMEOUT_SECONDS"
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
    none.
    """

    cache: LocalStore | RemoteStore | None = None
    limiter: RateLimiter | None = None


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
    nursery: Callable[[str], Nursery]
    slots: asyncio.Semaphore
    commons: Commons
    registry: Registry


async def load_model(means: Means, model: ModelSource) -> list[ServedModel]:
    """All versions of a model, or none (row 14.05).  Raises TisError."""
    served: list[ServedModel] = []

    async def load(version: Version) -> None:
        served.append(await load_version(means, version))

    try:
        await gather(*(load(Version(model, source)) for source in model.versions))
    except BaseException:
        why = "another version of the model failed to load"
        await asyncio.gather(*(each.stop(limits.WORKER_STOP_SECONDS_MAX, why) for each in served))
        raise
    return served


async def load_version(means: Means, version: Version) -> ServedModel:
    """One version, loaded and ready, or nothing of it.  Raises TisError."""
    model = version.model
    began_ns = now_ns()
    config = await _completed(means, version) if model.may_complete else model.config
    served = _served(means, version, config)
    try:
        await gather(*(_load_instance(means, instance) for instance in served.instances))
    except BaseException:
        await served.stop(limits.WORKER_STOP_SECONDS_MAX, "the model failed to load")
        raise
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


async def _completed(means: Means, version: Version) -> LoadedConfig:
    """The configuration after the model's own auto_complete_config."""
    config = version.model.config
    name = f"{config.name}_{version.number}_complete"
    birth = Birth(
        name=name,
        load=_load(version, config, "complete", config.instances[0]),
        nursery=means.nursery(_interpreter(means, version)),
        load_seconds_max=means.settings.load_seconds_max,
    )
    signature = ModelSignature(config.name, version.number, 0, False, [], [])
    arena = Arena(name, COMPLETION_ARENA_BYTES, COMPLETION_ARENA_BYTES)
    runtime = ModelRuntime(signature, arena, SchedulerSettings(), means.clock, {})
    link = RingLink(name, runtime, means.poller, COMPLETION_ARENA_BYTES)
    async with means.slots:
        worker = Worker(birth, means.place)
        try:
            answer = await worker.start(link.fds)
            await asyncio.wait({worker.ended}, timeout=limits.WORKER_STOP_SECONDS_MAX)
        finally:
            worker.kill("has completed the configuration")
            link.close()
    return merge_completed(config, str(answer.get("config", "")))


def _served(means: Means, version: Version, config: LoadedConfig) -> ServedModel:
    use_bytes = machine.arena_use_bytes()
    arena_bytes = use_bytes * limits.ARENA_CAP_FACTOR
    inputs, outputs = signature_fields(config)
    folder = version.model.folder
    labelled = [
        (*field[:3], read_labels(folder, tensor.label_filename))
        for field, tensor in zip(outputs, config.outputs, strict=True)
    ]
    signature = ModelSignature(config.name, version.number, config.max_batch_size, config.decoupled, inputs, labelled)
    label = f"tisfast-in-{config.name}"
    batches = config.scheduler.dynamic and config.max_batch_size > 1 and not config.decoupled
    arena = (RowArena if batches else Arena)(label, arena_bytes, use_bytes)
    strategy = _strategy(version, config)
    runtime = ModelRuntime(signature, arena, config.scheduler, means.clock, config.as_dict, strategy)
    keep_answers(runtime, means.commons.cache, config, version.source.folder)
    timer = RuntimeTimer(runtime, means.place.loop, now_ns)
    seconds_max = _execution_seconds_max(config, means.settings)
    warm_up = WarmUp(runtime, config.warm_up, folder, seconds_max) if config.warm_up else None
    claims = Claims(means.commons.limiter, runtime, config.instances)
    served = ServedModel(runtime, timer, seconds_max, claims)
    nursery = means.nursery(_interpreter(means, version))
    threads = machine.threads_share(len(config.instances))
    log.info(
        "loading %s:%s: %d instance(s), %d thread(s) each, under %s",
        config.name, version.number, len(config.instances), threads, nursery.interpreter,
        extra={"facts": {"model": config.name, "version": version.number}},
    )  # fmt: skip
    for planned in config.instances:
        birth = Birth(
            name=planned.name,
            load=_load(version, config, "serve", planned),
            nursery=nursery,
            env=_environment(planned.kind, planned.device_id, means.settings),
            threads=threads,
            load_seconds_max=means.settings.load_seconds_max,
        )

        def make_link(name: str = planned.name) -> RingLink:
            link = RingLink(name, runtime, means.poller, arena_bytes, means.registry)
            link.claim = claims.of(name)
            return link

        served.instances.append(Instance(birth, means.place, runtime, make_link, served.changed, warm_up))
    return served


def _strategy(version: Version, config: LoadedConfig) -> Strategy | None:
    """The model's custom batching strategy; what it raises is logged once, with its traceback."""
    file = read_strategy(config, version.model.folder)
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
    }
    if role == "serve" and config.scheduler.sequence is not None:
        model.update(sequence_part(config.scheduler.sequence, version.model.folder))
    return {"t": "load", "role": role, "model": model}


def _tensor(tensor: TensorConfig) -> list[Any]:
    return [tensor.name, tensor.dtype, tensor.dims, tensor.worker_dims if tensor.reshaped else None]


def _environment(kind: str, device: int, settings: WorkerSettings) -> dict[str, str]:
    if kind != "GPU":
        return {}
    return {"CUDA_VISIBLE_DEVICES": machine.device_name(device, settings.cuda_visible)}


def _interpreter(means: Means, version: Version) -> str:
    chosen = version.model.interpreter
    return means.settings.interpreter if chosen is None else str(chosen)


def _execution_seconds_max(config: LoadedConfig, settings: WorkerSettings) -> float:
    text = config.parameters.get(TIMEOUT_KEY, "")
    if not text:
        return settings.execution_seconds_max
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        place = config.places.get(("parameters", TIMEOUT_KEY))
        raise ConfigError(
            f"parameter {TIMEOUT_KEY} {text!r} of model '{config.name}' is not a number of seconds above 0",
            file=config.file,
            line=place.line if place else 0,
            column=place.column if place else 0,
            key=f"parameters[{TIMEOUT_KEY}]",
        )
    return seconds
