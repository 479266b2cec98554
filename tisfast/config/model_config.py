"""A model's configuration: from text to a checked, frozen result.  Layer 2 (config).

    draft = parse(text, "repo/m/config.pbtxt")        every error of the file noted, nothing raised
    config = finish(draft, "m", gpus=())              defaults filled in, all rules checked; raises ConfigErrors

Between the two, repo/completion.py fills in what the model's files tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

from tisfast.config import (
    batch_io,
    defaults,
    ensemble_config,
    instance_groups,
    resources,
    schema,
    tensor_config,
    unsupported,
    versions,
    warm_up_samples,
)
from tisfast.config import scheduler_settings as scheduling
from tisfast.config.backends import BUILT_IN, Backends
from tisfast.config.ensemble_config import EnsembleConfig
from tisfast.config.error_report import KeyPath, Report, SourcePosition
from tisfast.config.instance_groups import InstanceGroup, PlannedInstance
from tisfast.config.json_form import parse_json
from tisfast.config.pbtxt import parse_text
from tisfast.config.resources import Resources
from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.config.tensor_config import TensorConfig
from tisfast.config.versions import VersionPolicy
from tisfast.config.warm_up_samples import WarmUpSample


@dataclass(frozen=True)
class ConfigDraft:
    """A ModelConfig as written, and its errors so far.  Owned by the load."""

    message: schema.Message
    report: Report

    @classmethod
    def empty(cls, file: str) -> ConfigDraft:
        """The draft of a model without a config.pbtxt."""
        return cls(schema.model_config(), Report(file))


@dataclass(frozen=True)
class LoadedConfig:
    """A configuration that keeps every rule.

    message: the normalised ModelConfig; read only, shared.  file: where it came from, for later errors.
    gpus, backends: what it was checked against.  partial: types and dims may be missing until a worker has been asked
    (complete.merge_completed).  places: line and column of each key in `file`.
    """

    name: str
    file: str
    message: schema.Message
    backend: str
    max_batch_size: int
    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    scheduler: SchedulerSettings
    ensemble: EnsembleConfig | None
    instance_groups: tuple[InstanceGroup, ...]
    version_policy: VersionPolicy
    parameters: Mapping[str, str]
    default_model_filename: str
    decoupled: bool
    gpus: tuple[int, ...]
    backends: Backends = field(repr=False, compare=False)
    partial: bool
    warm_up: tuple[WarmUpSample, ...]
    resources: Resources
    places: Mapping[KeyPath, SourcePosition] = field(repr=False, compare=False)

    @cached_property
    def as_dict(self) -> dict[str, Any]:
        """The JSON-able form that GET .../config answers and workers get.  Shared: do not write to it."""
        return defaults.to_dict(self.message)

    @cached_property
    def instances(self) -> tuple[PlannedInstance, ...]:
        """Every worker to start."""
        return instance_groups.instances(self.instance_groups)


def parse(text: str, file: str) -> ConfigDraft:
    """Read config.pbtxt text.  Never raises for the text's sake: errors are in the draft's report."""
    report = Report(file)
    return ConfigDraft(parse_text(text, report), report)


def parse_json_form(text: str, file: str) -> ConfigDraft:
    """Read the JSON form, as a load override has it."""
    report = Report(file)
    return ConfigDraft(parse_json(text, report), report)


def finish(
    draft: ConfigDraft, name: str, *, gpus: tuple[int, ...] = (), partial: bool = False, backends: Backends = BUILT_IN
) -> LoadedConfig:
    """Fill in the defaults and check every rule.  Raises ConfigErrors with all errors, those of the text first.

    name: the model's folder; gpus: device ids that instances may use; partial: types and dims of tensors may be
    missing, because a worker will be asked for them; backends: those that there are.
    """
    message, report = draft.message, draft.report
    if report.malformed:  # the brackets do not match, so further complaints would be about things nobody wrote
        report.raise_all()
    if message.name and message.name != name:
        report.add(
            f"unexpected directory name '{name}' for model '{message.name}', directory name must equal model name",
            ("name",), hint=f'write name: "{name}", or leave it out',
        )  # fmt: skip
    backend = backends.named(message.backend)
    defaults.normalise(message, name, gpus, on_cpu=backend is not None and backend.on_cpu)
    config = _slices(message, report, gpus, partial, backends)
    report.raise_if_any()
    return config


def _slices(
    message: schema.Message, report: Report, gpus: tuple[int, ...], partial: bool, backends: Backends
) -> LoadedConfig:
    unsupported.check(message, report, backends)
    batch_io.check(message, report)
    with report.loading():
        inputs, outputs = tensor_config.read(message, report, partial=partial)
        wants = resources.read(message, report)
        groups = instance_groups.read(message, report, gpus, by_free_memory=wants.free_memory)
        warm = warm_up_samples.read(message, report, None if partial else inputs)
    return LoadedConfig(
        name=message.name,
        file=report.file,
        message=message,
        backend=message.backend,
        max_batch_size=message.max_batch_size,
        inputs=inputs,
        outputs=outputs,
        scheduler=scheduling.read(message, report),
        ensemble=ensemble_config.read(message, report),
        instance_groups=groups,
        version_policy=versions.read(message),
        parameters=MappingProxyType({key: message.parameters[key].string_value for key in sorted(message.parameters)}),
        default_model_filename=message.default_model_filename,
        decoupled=message.model_transaction_policy.decoupled,
        gpus=gpus,
        backends=backends,
        partial=partial,
        warm_up=warm,
        resources=wants,
        places=MappingProxyType(report.places),
    )


InputFields: TypeAlias = tuple[str, int, tuple[int, ...], bool, bool]
OutputFields: TypeAlias = tuple[str, int, tuple[int, ...]]


def signature_fields(config: LoadedConfig) -> tuple[list[InputFields], list[OutputFields]]:
    """The arguments of wire's ModelSignature: (name, dtype code, dims, optional, ragged) of each input, three of each
    output.

    dims are the client's; where `reshape` is used the worker sees TensorConfig.worker_dims instead.
    """
    inputs = [(tensor.name, tensor.dtype, tensor.dims, tensor.optional, tensor.ragged) for tensor in config.inputs]
    return inputs, [(tensor.name, tensor.dtype, tensor.dims) for tensor in config.outputs]
