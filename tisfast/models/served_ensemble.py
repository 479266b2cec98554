"""Ensembles among the served models: ready when the models of their steps are.  Layer 4 (models)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tisfast import defaults, limits
from tisfast.config.ensemble_join import join
from tisfast.config.model_config import LoadedConfig, signature_fields
from tisfast.engine.ensemble_graph import EnsembleGraph
from tisfast.engine.ensemble_runtime import EnsembleRuntime
from tisfast.engine.interface import models_under
from tisfast.errors import ConfigError, TisError
from tisfast.models.beside import beside
from tisfast.models.caching import Store, keep_answers
from tisfast.models.idle_memory import IdleTrimmer
from tisfast.native.memory import Arena, now_ns
from tisfast.processes import machine
from tisfast.processes.instance import Instance
from tisfast.repo.dependencies import no_version
from tisfast.repo.labels import read_labels
from tisfast.types import NO_DEVICE, split_identity
from tisfast.wire.signature import ModelSignature

if TYPE_CHECKING:
    from pathlib import Path

    from tisfast.config.ensemble_config import EnsembleConfig
    from tisfast.engine.core import Clock
    from tisfast.engine.interface import Runtime
    from tisfast.engine.registry import Registry
    from tisfast.executor import DaemonExecutor
    from tisfast.repo.scan_result import ModelSource


class ServedEnsemble:
    """One version of an ensemble, beside ServedModel."""

    execution_seconds_max: float = defaults.EXECUTION_SECONDS_MAX
    restarts = 0

    def __init__(self, runtime: EnsembleRuntime, uses: Sequence[Runtime]) -> None:
        """uses: the runtimes of its steps."""
        self.runtime = runtime
        self.uses = uses
        self.instances: Sequence[Instance] = ()
        self.load_seconds = 0.0
        self._rest = IdleTrimmer(runtime)

    @property
    def title(self) -> str:
        """NAME version N."""
        return f"{self.runtime.signature.name} version {self.runtime.signature.version}"

    @property
    def unanswered(self) -> int:
        """Requests that have not had their final answer."""
        return self.runtime.inflight

    @property
    def outstanding(self) -> int:
        """Requests that are being received, or have not had their final answer."""
        return max(self.unanswered, self.runtime.arena.used_blocks)

    def look_for_hangs(self, now_ns: int) -> None:
        """Its steps' models are looked at themselves."""

    def look_for_rest(self, now_ns: int) -> None:
        """Give the input arena's free pages back once the ensemble has been idle for ARENA_TRIM_SECONDS."""
        self._rest.look(self.unanswered, now_ns)

    async def stop(self, seconds: float, message: str) -> None:
        """Refuse what still comes with `message`; what is begun ends with its steps."""
        self.runtime.refuse(message)


class StepRuntimes:
    """The runtimes that one copy of an ensemble is joined to.

    So its requests end with the copies that they began with, whatever is loaded and unloaded meanwhile.
    """

    def __init__(self) -> None:
        self.runtimes: dict[tuple[str, str], Runtime] = {}

    def resolve(self, name: str, version: str) -> Runtime:
        """The runtime of a step, by the name and version that the configuration has for it."""
        return self.runtimes[name, version]


def load_ensemble(
    source: ModelSource,
    registry: Registry,
    clock: Clock,
    cache: Store | None = None,
    copies: DaemonExecutor | None = None,
) -> list[ServedEnsemble]:
    """All versions of an ensemble, once each of its models is loaded or has failed.  Raises TisError."""
    began_ns = now_ns()
    assert source.config.ensemble is not None
    steps = StepRuntimes()
    models = _models(source, source.config.ensemble, registry, steps)
    joined = join(source.config, models)
    leaves = [models_under(registry.resolve(model.identity, model.version)) for model in models]
    graph = EnsembleGraph(joined.config, joined.levels, [model.decoupled for model in models], leaves)
    served = []
    for version in source.versions:
        signature = _signature(joined.config, str(version.number), source.folder, models)
        signature.namespace = source.namespace
        use_bytes = machine.arena_use_bytes()
        arena_bytes = min(use_bytes * limits.ARENA_CAP_FACTOR, limits.ARENA_CAP_BYTES_MAX)
        arena = Arena(f"tisfast-in-{signature.name}", arena_bytes, use_bytes)
        runtime = EnsembleRuntime(signature, arena, graph, clock, _shown(joined.config, source), steps.resolve)
        if copies is not None:
            runtime.beside = partial(beside, copies)
        keep_answers(runtime, cache, joined.config, copies=copies)
        served.append(ServedEnsemble(runtime, tuple(steps.runtimes.values())))
        served[-1].load_seconds = (now_ns() - began_ns) / 1e9
    return served


def _shown(config: LoadedConfig, source: ModelSource) -> dict[str, Any]:
    """The configuration, with the namespaces that steps were found in."""
    if not source.steps:
        return config.as_dict
    scheduling = config.as_dict["ensemble_scheduling"]
    steps = [
        {**step, "model_namespace": split_identity(source.steps[step["model_name"]])[0]} for step in scheduling["step"]
    ]
    return {**config.as_dict, "ensemble_scheduling": {**scheduling, "step": steps}}


def _models(
    source: ModelSource, ensemble: EnsembleConfig, registry: Registry, steps: StepRuntimes
) -> list[ModelSignature]:
    """The signature of each step's model, which is noted in `steps`.  Raises ConfigError for one that is not loaded."""
    found = []
    for step in ensemble.steps:
        version = "" if step.version < 0 else str(step.version)
        model = source.steps.get(step.model, step.model)
        try:
            runtime = registry.resolve(model, version)
        except TisError as error:
            if registry.versions(model):
                raise no_version(source.name, model, step.version, source.config.file) from error
            raise ConfigError(_not_loaded(source.name, model, registry), file=source.config.file) from error
        steps.runtimes[step.model, version] = runtime
        found.append(runtime.signature)
    return found


def _not_loaded(ensemble: str, model: str, registry: Registry) -> str:
    entries = registry.states(model)
    reasons = "".join(f" version {entry.version} is at {entry.state} state: {entry.reason};" for entry in entries)
    about = f"ensemble '{ensemble}' depends on '{model}' which has no loaded version."
    return f"{about} Model '{model}' loading failed with error:{reasons}"


def _device_inputs(config: LoadedConfig, models: Sequence[ModelSignature]) -> int:
    """The GPU where all steps take the ensemble's own inputs; what must be copied for one of them is copied at once.

    By their configurations: a step that gets copies on the host for some time gets them behind the ensemble, too.
    """
    assert config.ensemble is not None
    own = {tensor.name for tensor in config.inputs}
    taken = {
        NO_DEVICE if model.copies_devices else model.device_inputs_meant
        for step, model in zip(config.ensemble.steps, models, strict=True)
        if any(tensor in own for _, tensor in step.inputs)
    }
    return taken.pop() if len(taken) == 1 else NO_DEVICE


def _signature(config: LoadedConfig, version: str, folder: Path, models: Sequence[ModelSignature]) -> ModelSignature:
    """Labels are those of the step that makes an output, where the ensemble names none."""
    assert config.ensemble is not None
    made = {
        tensor: model.output_by_name[name].labels
        for step, model in zip(config.ensemble.steps, models, strict=True)
        for name, tensor in step.outputs
    }
    inputs, outputs = signature_fields(config)
    labelled = [
        (*field[:3], read_labels(folder, tensor.label_filename) if tensor.label_filename else made.get(tensor.name, ()))
        for field, tensor in zip(outputs, config.outputs, strict=True)
    ]
    signature = ModelSignature(config.name, version, config.max_batch_size, config.decoupled, inputs, labelled)
    signature.device_inputs = signature.device_inputs_meant = _device_inputs(config, models)
    return signature
