"""The ModelConfig message types, made at run time from the descriptor set that setup.py compiles.  Layer 2 (config).

A descriptor pool of our own, never protobuf's default one: a process that also imports tritonclient registers the same
names there, and the second registration would fail.  protobuf itself is imported on first use (25 ms).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tisfast.errors import Internal

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pool import DescriptorPool

Message: TypeAlias = Any
"""A protobuf message whose class is made at run time, so that no static type can name its fields."""

Field: TypeAlias = Any
"""A FieldDescriptor.  Its stubs call Optional what a field of a known kind always has."""

DESCRIPTOR_SET = Path(__file__).parent.parent / "wire" / "proto" / "triton.desc"
PACKAGE = "inference"


def message_class(name: str) -> Any:
    """The class of message `name` of package inference, e.g. "ModelConfig" or "ModelVersionPolicy.Latest"."""
    return class_of(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def is_ensemble(message: Message) -> bool:
    """Whether a ModelConfig asks for an ensemble: models joined by the server, without a backend of its own."""
    return bool(message.platform == "ensemble" or message.HasField("ensemble_scheduling"))


def class_of(descriptor: Descriptor) -> Any:
    """The class of a message type of our pool."""
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415 - 25 ms, only for who needs it

    return GetMessageClass(descriptor)


def model_config() -> Message:
    """An empty ModelConfig."""
    return message_class("ModelConfig")()


def is_repeated(field: Field) -> bool:
    """Whether a field is a list or a map.  Asks the way that every supported protobuf runtime answers."""
    repeated = getattr(field, "is_repeated", None)  # protobuf >= 6.31, where `label` warns
    return bool(repeated) if repeated is not None else field.label == field.LABEL_REPEATED


def map_entry(field: Field) -> Descriptor | None:
    """The key/value message type behind a map field, None for every other field."""
    entry: Descriptor | None = field.message_type
    return entry if entry is not None and entry.GetOptions().map_entry else None


def put_entry(container: Any, field: Field, entry: Message) -> None:
    """Put a parsed key/value pair into a map; the last of equal keys wins."""
    if field.message_type.fields_by_name["value"].message_type is None:
        container[entry.key] = entry.value
    else:
        container[entry.key].CopyFrom(entry.value)


@cache
def _pool() -> DescriptorPool:
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415

    pool = DescriptorPool()
    for file in _file_descriptors():
        pool.AddSerializedFile(file)
    return pool


def _file_descriptors() -> list[bytes]:
    """The serialized files of the set, which is a list of field 1; cut here to spare the import of descriptor_pb2."""
    try:
        data = DESCRIPTOR_SET.read_bytes()
    except FileNotFoundError as error:
        raise Internal(f"{DESCRIPTOR_SET} is missing: build tisfast with `setup.py build_proto`") from error
    files, position = [], 0
    while position < len(data):
        if data[position] != 0x0A:
            raise Internal(f"{DESCRIPTOR_SET} is damaged at byte {position}: build it again")
        nbytes, position = _varint(data, position + 1)
        files.append(data[position : position + nbytes])
        position += nbytes
    return files


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
