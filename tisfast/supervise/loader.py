"""Load one model version: complete its configuration, start its instances, put its runtime together.

Layer 4 (supervise).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from tisfast import limits
from tisfast.config.model_config import LoadedConfig, signature_fields
from tisfast.engine.runtime import ModelRuntime
from tisfast.errors import ConfigError
from tisfast.native.memory import Arena, now_ns
from tisfast.repo.complete import merge_completed
from tisfast.supervise import machine
from tisfast.supervise.environment import KEY, interpreter_of
from tisfast.supervise.instance import Instance
from tisfast.supervise.link import Poller, RingLink
from tisfast.supervise.model import ServedModel
from tisfast.supervise.nursery import Nursery
from tisfast.supervise.timer import RuntimeTimer
from tisfast.supervise.worker import Birth, Worker, Workplace
from tisfast.wire.signature import ModelSignature

if TYPE_CHECKING:
    from tisfast.config.settings import WorkerSettings
    from tisfast.engine.core import Clock

log = logging.getLogger("tisfast.models")
TIMEOUT_KEY = "EXECUTION_TIMEOUT_SECONDS"
T = TypeVar("T")
NO_DATA = "/dev/null"
"""Stands for the five data descriptors of a worker that only completes a configuration: it maps none of them."""


@dataclass(frozen=True)
class VersionSource:
    """One version of a model on disk.  folder: the model's; version_folder: the version's; file: its model.py."""

    name: str
    version: str
    folder: Path
    version_folder: Path
    file: Path


@dataclass(frozen=True)
class Means:
    """What every load uses.  slots bounds the instances that may be loading at one time."""

    place: Workplace
    poller: Poller
    clock: Clock
    settings: WorkerSettings
    nursery: Callable[[str], Nursery]
    slots: asyncio.Semaphore


async def load_version(means: Means, source: VersionSource, config: LoadedConfig, *, ask_model: bool) -> ServedModel:
    """One version, loaded and ready, or nothing of it.

    ask_model: let the model's auto_complete_config complete `config`.  Raises TisError.
    """
    if ask_model:
        config = await _completed(means, source, config)
    served = _served(means, source, config)
    try:
        await gather(*(_load_instance(means, instance) for instance in served.instances))
    except BaseException:
        await served.stop(limits.WORKER_STOP_SECONDS_MAX, "the model failed to load")
        raise
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


async def _completed(means: Means, source: VersionSource, config: LoadedConfig) -> LoadedConfig:
    """The configuration after the model's own auto_complete_config."""
    first = config.instances[0]
    birth = Birth(
        name=f"{source.name}_{source.version}_complete",
        load={"t": "load", "role": "complete", "model": _load_facts(source, config, first.name, first.kind)},
        nursery=means.nursery(_interpreter(means, source, config)),
        load_seconds_max=means.settings.load_seconds_max,
    )
    async with means.slots:
        worker = Worker(birth, means.place)
        with open(NO_DATA, "rb") as nothing:
            try:
                answer = await worker.start([nothing.fileno()] * 5)
                await asyncio.wait({worker.ended}, timeout=limits.WORKER_STOP_SECONDS_MAX)
            finally:
                worker.kill("has completed the configuration")
    return merge_completed(config, str(answer.get("config", "")))


def _served(means: Means, source: VersionSource, config: LoadedConfig) -> ServedModel:
    use_bytes = machine.arena_use_bytes()
    arena_bytes = use_bytes * limits.ARENA_CAP_FACTOR
    inputs, outputs = signature_fields(config)
    signature = ModelSignature(
        config.name, source.version, config.max_batch_size, config.decoupled, inputs, [field[:3] for field in outputs]
    )
    arena = Arena(f"tisfast-in-{source.name}", arena_bytes, use_bytes)
    runtime = ModelRuntime(signature, arena, config.scheduler, means.clock, config.as_dict)
    timer = RuntimeTimer(runtime, means.place.loop, now_ns)
    served = ServedModel(runtime, timer, _execution_seconds_max(config, means.settings))
    nursery = means.nursery(_interpreter(means, source, config))
    threads = machine.threads_share(len(config.instances))
    log.info(
        "loading %s:%s: %d instance(s), %d thread(s) each, under %s",
        source.name, source.version, len(config.instances), threads, nursery.interpreter,
        extra={"facts": {"model": source.name, "version": source.version}},
    )  # fmt: skip
    for planned in config.instances:
        facts = _load_facts(source, config, planned.name, planned.kind)
        birth = Birth(
            name=planned.name,
            load={"t": "load", "role": "serve", "model": facts},
            nursery=nursery,
            env=_environment(planned.kind, planned.device_id, means.settings),
            threads=threads,
            load_seconds_max=means.settings.load_seconds_max,
        )

        def make_link(name: str = planned.name) -> RingLink:
            return RingLink(name, runtime, means.poller, arena_bytes)

        served.instances.append(Instance(birth, means.place, runtime, make_link, served.changed))
    return served


def _load_facts(source: VersionSource, config: LoadedConfig, instance: str, kind: str) -> dict[str, Any]:
    """`model` of WIRE.md's load message.

    device_id is 0 for GPUs too: the worker sees one GPU only (CUDA_VISIBLE_DEVICES), and CUDA counts it as 0.
    """
    return {
        "name": source.name,
        "version": source.version,
        "repository": str(source.folder),
        "version_dir": str(source.version_folder),
        "file": str(source.file),
        "instance": instance,
        "kind": kind,
        "device_id": 0,
        "config": orjson.dumps(config.as_dict).decode(),
        "decoupled": config.decoupled,
        "inputs": [[tensor.name, tensor.dtype] for tensor in config.inputs],
        "outputs": [[tensor.name, tensor.dtype] for tensor in config.outputs],
        "spin_us": limits.SPIN_US,
        "log_verbose": int(log.isEnabledFor(logging.DEBUG)),
    }


def _environment(kind: str, device: int, settings: WorkerSettings) -> dict[str, str]:
    if kind != "GPU":
        return {}
    return {"CUDA_VISIBLE_DEVICES": machine.device_name(device, settings.cuda_visible)}


def _interpreter(means: Means, source: VersionSource, config: LoadedConfig) -> str:
    return interpreter_of(config.parameters.get(KEY, ""), str(source.folder), means.settings.interpreter)


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
