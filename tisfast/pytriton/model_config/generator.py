"""A TritonModelConfig as the server's dictionary, and as a config.pbtxt."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from tisfast.config import schema
from tisfast.config.error_report import Report
from tisfast.config.json_form import parse_json
from tisfast.pytriton.exceptions import PyTritonBadParameterError
from tisfast.pytriton.model_config.common import DynamicBatcher, ModelWarmup, QueuePolicy
from tisfast.pytriton.model_config.datatypes import config_name
from tisfast.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig


class ModelConfigGenerator:
    """Writes one configuration."""

    def __init__(self, config: TritonModelConfig) -> None:
        """Nothing is checked yet."""
        self._config = config

    def to_file(self, config_path: str | pathlib.Path) -> str:
        """Write a config.pbtxt and return its text.  Raises PyTritonBadParameterError."""
        from google.protobuf import text_format  # noqa: PLC0415 - only for who needs it

        text = text_format.MessageToString(self._message())
        path = pathlib.Path(config_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return text

    def get_config(self) -> dict[str, Any]:
        """The dictionary.  Raises PyTritonBadParameterError for values out of their range."""
        config = self._config
        made: dict[str, Any] = {"name": config.model_name, "backend": config.backend}
        made |= self._batching()
        if config.inputs:
            made["input"] = [_tensor(spec) for spec in config.inputs]
        if config.outputs:
            _check_outputs(config.outputs)
            made["output"] = [_tensor(spec) for spec in config.outputs]
        if config.instance_group:
            made["instance_group"] = [
                {"count": count, "kind": kind.value} for kind, count in config.instance_group.items()
            ]
        if config.decoupled:
            made["model_transaction_policy"] = {"decoupled": True}
        if config.backend_parameters:
            made["parameters"] = {key: {"string_value": str(value)} for key, value in config.backend_parameters.items()}
        if config.response_cache is not None:
            made["response_cache"] = {"enable": config.response_cache.enable}
        if config.model_warmup:
            made["model_warmup"] = [_warmup(each) for each in config.model_warmup]
        return made

    def _batching(self) -> dict[str, Any]:
        config = self._config
        if not config.batching:
            return {"max_batch_size": 0}
        if config.max_batch_size < 1:
            raise PyTritonBadParameterError("The `max_batch_size` must be greater or equal to 1.")
        made: dict[str, Any] = {"max_batch_size": config.max_batch_size}
        if config.batcher is not None:
            made["dynamic_batching"] = _batcher(config.batcher)
        return made

    def _message(self) -> schema.Message:
        """The dictionary as a ModelConfig.  The server reads it by the same code."""
        report = Report(self._config.model_name)
        message = parse_json(json.dumps(without_nones(self.get_config())), report)
        report.raise_if_any()
        return message


def without_nones(value: Any) -> Any:
    """The same without keys whose value is None, which say that the server is to choose."""
    if isinstance(value, dict):
        return {key: without_nones(each) for key, each in value.items() if each is not None}
    if isinstance(value, np.generic):
        return value.item()
    return [without_nones(each) for each in value] if isinstance(value, list | tuple) else value


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    name = config_name(spec.dtype)
    if name is None:
        raise PyTritonBadParameterError(
            f"Tensor `{spec.name}` has dtype {spec.dtype!r}, which no tensor of the server can have; give a NumPy "
            "number type or bool, or np.bytes_ for strings."
        )
    made = {"name": spec.name, "dims": list(spec.shape), "data_type": name}
    return {**made, "optional": True} if spec.optional else made


def _check_outputs(outputs: Any) -> None:
    optional = [spec.name for spec in outputs if spec.optional]
    if optional:
        raise PyTritonBadParameterError(
            f"Optional flag for outputs is not supported. Outputs marked as optional: {', '.join(optional)}."
        )


def _batcher(batcher: DynamicBatcher) -> dict[str, Any]:
    levels = batcher.priority_levels
    if batcher.default_priority_level > levels:
        raise PyTritonBadParameterError(f"The `default_priority_level` must be between 1 and {levels}.")
    if batcher.priority_queue_policy and not levels:
        raise PyTritonBadParameterError(
            "Provide the `priority_levels` if you want to define `priority_queue_policy` for Dynamic Batching."
        )
    for priority in batcher.priority_queue_policy or {}:
        if priority < 0 or priority > levels:
            raise PyTritonBadParameterError(
                f"Invalid `priority`={priority} provided. The value must be between 1 and {levels}."
            )
    made: dict[str, Any] = {
        "maxQueueDelayMicroseconds": batcher.max_queue_delay_microseconds,
        "preferredBatchSize": batcher.preferred_batch_size,
        "preserveOrdering": batcher.preserve_ordering,
        "priorityLevels": levels,
        "defaultPriorityLevel": batcher.default_priority_level,
        "defaultQueuePolicy": _policy(batcher.default_queue_policy) if batcher.default_queue_policy else None,
        "priorityQueuePolicy": {key: _policy(each) for key, each in (batcher.priority_queue_policy or {}).items()},
    }
    return {key: value for key, value in made.items() if value}


def _policy(policy: QueuePolicy) -> dict[str, Any]:
    return {
        "timeoutAction": policy.timeout_action.value,
        "defaultTimeoutMicroseconds": policy.default_timeout_microseconds,
        "allowTimeoutOverride": policy.allow_timeout_override,
        "maxQueueSize": policy.max_queue_size,
    }


def _warmup(warmup: ModelWarmup) -> dict[str, Any]:
    return {
        "name": warmup.name,
        "batch_size": warmup.batch_size,
        "inputs": {name: _warmup_input(spec) for name, spec in warmup.inputs.items()},
        "count": warmup.count,
    }


def _warmup_input(spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"data_type": config_name(spec.dtype), "dims": list(spec.shape)}
    if spec.input_data_file is not None:
        return {**made, "input_data_file": str(spec.input_data_file)}
    return {**made, "zero_data": True} if spec.zero_data else {**made, "random_data": True}
