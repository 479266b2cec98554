"""The ModelConfig message types.  Layer 2 (config)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tisfast import descriptors
from tisfast.descriptors import class_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

__all__ = [
    "Field",
    "Message",
    "class_of",
    "is_ensemble",
    "is_repeated",
    "map_entry",
    "message_class",
    "model_config",
    "put_entry",
]

Message: TypeAlias = Any
"""A protobuf message whose class is made at run time, so that no static type can name its fields."""

Field: TypeAlias = Any
"""A FieldDescriptor.  Its stubs call Optional what a field of a known kind always has."""

PACKAGE = "inference"


def message_class(name: str) -> Any:
    """The class of message `name` of package inference, e.g. "ModelConfig" or "ModelVersionPolicy.Latest"."""
    return descriptors.message_class(f"{PACKAGE}.{name}")


def is_ensemble(message: Message) -> bool:
    """Whether a ModelConfig asks for an ensemble: models joined by the server, without a backend of its own."""
    return bool(message.platform == "ensemble" or message.HasField("ensemble_scheduling"))


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
