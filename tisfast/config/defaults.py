"""Fill in Triton's defaults, and print a ModelConfig the way Triton's /config does.  Layer 2 (config)."""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from tisfast.config import instance_groups, scalars, schema
from tisfast.config.schema import Field

SEQUENCE_IDLE_MICROSECONDS: Final = 1_000_000


def normalise(message: schema.Message, name: str, gpus: tuple[int, ...], *, on_cpu: bool = False) -> None:
    """Write Triton's defaults into the message, in place.

    name: the model's folder; gpus: ids of the GPUs that models may use on this machine; on_cpu: instances are on the
    CPU where the message says no kind.
    """
    if not message.name:
        message.name = name
    if not message.version_policy.WhichOneof("policy_choice"):
        message.version_policy.latest.num_versions = 1
    batching = message.HasField("dynamic_batching")
    if batching and not message.dynamic_batching.preferred_batch_size and message.max_batch_size > 0:
        message.dynamic_batching.preferred_batch_size.append(message.max_batch_size)
    if message.HasField("sequence_batching") and not message.sequence_batching.max_sequence_idle_microseconds:
        message.sequence_batching.max_sequence_idle_microseconds = SEQUENCE_IDLE_MICROSECONDS
    oldest = message.HasField("sequence_batching") and message.sequence_batching.HasField("oldest")
    if oldest and not message.sequence_batching.oldest.preferred_batch_size and message.max_batch_size > 0:
        message.sequence_batching.oldest.preferred_batch_size.append(message.max_batch_size)
    if schema.is_ensemble(message):
        return
    for buffer in ("input_pinned_memory", "output_pinned_memory"):
        if not message.optimization.HasField(buffer):
            getattr(message.optimization, buffer).enable = True
    instance_groups.normalise(message, gpus, on_cpu=on_cpu)


def to_dict(message: schema.Message) -> dict[str, Any]:
    """The JSON-able form of a ModelConfig, every default printed, in Triton's order of keys.

    Unset messages and choices are left out; 64-bit integers are numbers, enums names, map keys text.
    """
    return _message(message)


def _message(message: schema.Message) -> dict[str, Any]:
    printed: dict[str, Any] = {}
    for field in sorted(message.DESCRIPTOR.fields, key=_scalar_choice):  # a stable sort
        single = field.message_type is not None and not schema.is_repeated(field)
        if (single or field.containing_oneof is not None) and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if schema.map_entry(field) is not None:
            printed[field.name] = _map(field, value)
        elif schema.is_repeated(field):
            printed[field.name] = [_value(field, entry) for entry in value]
        else:
            printed[field.name] = _value(field, value)
    return printed


def _scalar_choice(field: Field) -> bool:
    """Triton prints those members of a oneof that are no messages after all other fields."""
    return field.containing_oneof is not None and field.message_type is None


def _map(field: Field, container: Any) -> dict[str, Any]:
    value = field.message_type.fields_by_name["value"]
    return {str(key): _value(value, container[key]) for key in sorted(container)}


def _value(field: Field, value: Any) -> Any:
    kind = field.cpp_type
    if kind == scalars.MESSAGE:
        return _message(value)
    if kind == scalars.ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    if kind in (scalars.FLOAT, scalars.DOUBLE):
        return _number(value, single=kind == scalars.FLOAT)
    return value


def _number(value: float, *, single: bool) -> int | float:
    """The shortest number that reads back the same; without a fraction where there is none."""
    if value.is_integer() and abs(value) < 1e15 and (value or math.copysign(1, value) > 0):  # -0.0 stays what it is
        return int(value)
    if not single:
        return value
    packed = struct.pack("<f", value)
    shortest = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((number for number in shortest if struct.pack("<f", number) == packed), float(f"{value:.9g}"))
