"""A TritonModelConfig from the server's dictionary, or from a config.pbtxt."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tisfast.config.error_report import Report
from tisfast.config.pbtxt import parse_text
from tisfast.errors import ConfigError
from tisfast.pytriton.exceptions import PyTritonModelConfigError
from tisfast.pytriton.model_config.common import (
    DeviceKind,
    DynamicBatcher,
    ModelWarmup,
    QueuePolicy,
    TimeoutAction,
    WarmupInput,
)
from tisfast.pytriton.model_config.datatypes import numpy_type
from tisfast.pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig

_PREFIX = "TYPE_"


class ModelConfigParser:
    """Reads configurations; both forms of the keys of a batcher are known, snake_case and camelCase."""

    @classmethod
    def from_dict(cls, model_config_dict: Mapping[str, Any]) -> TritonModelConfig:
        """Raises PyTritonModelConfigError for tensors that lack something, TypeError for odd parameters."""
        given = model_config_dict
        max_batch_size = int(given.get("max_batch_size", 0))
        cache = given.get("response_cache")
        return TritonModelConfig(
            model_name=given["name"],
            batching=max_batch_size > 0,
            max_batch_size=max_batch_size,
            batcher=_batcher(given["dynamic_batching"]) if "dynamic_batching" in given else None,
            instance_group={
                DeviceKind(each.get("kind", DeviceKind.KIND_AUTO.value)): each.get("count")
                for each in given.get("instance_group", ())
            },
            decoupled=bool(given.get("model_transaction_policy", {}).get("decoupled", False)),
            backend_parameters=_parameters(given.get("parameters", {})),
            inputs=_tensors(given.get("input"), "input"),
            outputs=_tensors(given.get("output"), "output"),
            response_cache=ResponseCache(bool(cache.get("enable", False))) if cache else None,
            model_warmup=[_warmup(each) for each in given.get("model_warmup", ())] or None,
        )

    @classmethod
    def from_file(cls, *, config_path: pathlib.Path) -> TritonModelConfig:
        """Raises PyTritonModelConfigError, with line and column where the file is no configuration."""
        from google.protobuf import json_format  # noqa: PLC0415 - only for who needs it

        report = Report(str(config_path))
        message = parse_text(pathlib.Path(config_path).read_text(), report)
        try:
            report.raise_if_any()
        except ConfigError as error:
            raise PyTritonModelConfigError(f"{config_path}: {error}") from error
        return cls.from_dict(json_format.MessageToDict(message, preserving_proto_field_name=True))

    @classmethod
    def rewrite_io_spec(cls, item: Mapping[str, Any], io_type: str, idx: int) -> TensorSpec:
        """One tensor.  io_type: "input" or "output"; idx: its place.  Raises PyTritonModelConfigError."""
        name = item.get("name")
        if not name:
            raise PyTritonModelConfigError(f"Name for {io_type} at index {idx} not provided.")
        where = f"for {io_type} with name `{name}`"
        data_type = item.get("data_type")
        if not data_type:
            raise PyTritonModelConfigError(f"Data type {where} not defined.")
        if not str(data_type).startswith(_PREFIX):
            raise PyTritonModelConfigError(
                f"Invalid data type `{data_type}` {where} not defined. The expected name is TYPE_{{type}}."
            )
        dtype = numpy_type(data_type)
        if dtype is None:
            raise PyTritonModelConfigError(f"Unsupported data type `{data_type}` {where}")
        dims = item.get("dims", ())
        if len(dims) == 0:
            raise PyTritonModelConfigError(f"Dimension {where} not defined.")
        return TensorSpec(name, tuple(int(dim) for dim in dims), dtype, bool(item.get("optional", False)))


def _tensors(items: Sequence[Mapping[str, Any]] | None, io_type: str) -> list[TensorSpec] | None:
    return [ModelConfigParser.rewrite_io_spec(item, io_type, at) for at, item in enumerate(items or ())] or None


def _parameters(given: Any) -> dict[str, str]:
    if isinstance(given, Mapping):
        pairs = [(key, value) for key, value in given.items()]
    elif isinstance(given, list):
        pairs = [(each["key"], each["value"]) for each in given]
    else:
        raise TypeError(f"Invalid type for backend_parameters_config: {type(given)}")
    return {key: value["string_value"] if isinstance(value, Mapping) else value for key, value in pairs}


def _read(given: Mapping[str, Any], name: str, default: Any) -> Any:
    """The value of a key, by its snake_case or camelCase name."""
    first, *rest = name.split("_")
    camel = first + "".join(part.capitalize() for part in rest)
    return given.get(name, given.get(camel, default))


def _batcher(given: Mapping[str, Any]) -> DynamicBatcher:
    policy = _read(given, "default_queue_policy", None)
    policies = _read(given, "priority_queue_policy", None)
    sizes = _read(given, "preferred_batch_size", None)
    return DynamicBatcher(
        max_queue_delay_microseconds=int(_read(given, "max_queue_delay_microseconds", 0)),
        preferred_batch_size=[int(size) for size in sizes] if sizes else None,
        preserve_ordering=bool(_read(given, "preserve_ordering", False)),
        priority_levels=int(_read(given, "priority_levels", 0)),
        default_priority_level=int(_read(given, "default_priority_level", 0)),
        default_queue_policy=_policy(policy) if policy is not None else None,
        priority_queue_policy={int(key): _policy(each) for key, each in policies.items()} if policies else None,
    )


def _policy(given: Mapping[str, Any]) -> QueuePolicy:
    return QueuePolicy(
        timeout_action=TimeoutAction(_read(given, "timeout_action", TimeoutAction.REJECT.value)),
        default_timeout_microseconds=int(_read(given, "default_timeout_microseconds", 0)),
        allow_timeout_override=bool(_read(given, "allow_timeout_override", False)),
        max_queue_size=int(_read(given, "max_queue_size", 0)),
    )


def _warmup(given: Mapping[str, Any]) -> ModelWarmup:
    return ModelWarmup(
        name=given.get("name", ""),
        batch_size=int(given.get("batch_size", 0)),
        inputs={name: _warmup_input(each) for name, each in given.get("inputs", {}).items()},
        count=int(given.get("count", 1)),
    )


def _warmup_input(given: Mapping[str, Any]) -> WarmupInput:
    return WarmupInput(
        dtype=numpy_type(given.get("data_type", "")),
        shape=tuple(int(dim) for dim in given.get("dims", ())),
        zero_data=bool(given.get("zero_data", False)),
        random_data=bool(given.get("random_data", False)),
        input_data_file=given.get("input_data_file"),
    )
