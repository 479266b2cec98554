"""Our protobuf messages, made at run time from the descriptor set that setup.py compiles.  Layer 0.

A descriptor pool of our own, never protobuf's default one: a process that also imports tritonclient registers the same
names there, and the second registration would fail.  protobuf itself is imported on first use (25 ms).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tisfast.errors import Internal

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pool import DescriptorPool

DESCRIPTOR_SET = Path(__file__).parent / "wire" / "proto" / "triton.desc"


@cache
def message_class(name: str) -> Any:
    """The class of a message by its full name, e.g. "inference.ModelConfig"."""
    return class_of(pool().FindMessageTypeByName(name))


def class_of(descriptor: Descriptor) -> Any:
    """The class of a message type of our pool."""
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415 - 25 ms, only for who needs it

    return GetMessageClass(descriptor)


@cache
def pool() -> DescriptorPool:
    """All our files."""
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415

    made = DescriptorPool()
    for file in _file_descriptors():
        made.AddSerializedFile(file)
    return made


def _file_descriptors() -> list[bytes]:
    """The serialized files of the set, which is a list of field 1; cut here to spare the import of descriptor_pb2."""
    try:
        data = DESCRIPTOR_SET.read_bytes()
    except FileNotFoundError as error:
        raise Internal(
            f"{DESCRIPTOR_SET} is missing: build tisfast with `python setup.py build_proto build_ext --inplace`"
        ) from error
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
