"""RepositoryModelLoad: its files stay where they were received.  Layer 4 (operations).

Protobuf's parser copies all that it is given and lets nobody else run until it is done, 0.7 s for 300 MB.  So it is
given a message in which each long content is a short one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from tisfast import limits, tuning
from tisfast.errors import Unsupported
from tisfast.operations.model_control import SINGLE_REPOSITORY, grpc_load_order
from tisfast.repo.load_override import LoadOrder

CONTENT: Final = (3, 2, 4)
"""The way to a file's content by field numbers: parameters, the value of its entry, bytes_param."""
FIELDS_MAX: Final = limits.OVERRIDE_FILES_MAX + 16
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def load_order(message: bytes, parse: Callable[[bytes], Any]) -> LoadOrder:
    """parse: a RepositoryModelLoadRequest.  Raises TisError."""
    short, cut = without_files(message)
    request = parse(short)
    if request.repository_name:
        raise Unsupported(SINGLE_REPOSITORY)
    return grpc_load_order(request.model_name, request.parameters, cut)


def without_files(message: bytes) -> tuple[bytes, dict[bytes, memoryview]]:
    """The message with a mark in the place of each long content, and the contents by their marks.

    What is no such message is left as it is, for the parser to say so.
    """
    cut: dict[bytes, memoryview] = {}
    if len(message) <= tuning.CONTROL_CUT_BYTES:
        return message, cut
    try:
        return _cut(memoryview(message), CONTENT, os.urandom(8), cut), cut
    except ValueError:
        return message, {}


def _cut(data: memoryview, way: tuple[int, ...], mark: bytes, cut: dict[bytes, memoryview]) -> bytes:
    if not way:
        name = mark + len(cut).to_bytes(4, "little")  # which nobody else can have written
        cut[name] = data
        return name
    pieces: list[bytes | memoryview] = []
    for number, start, inside, end in _fields(data):
        if number == way[0] and end - inside > tuning.CONTROL_CUT_BYTES:
            short = _cut(data[inside:end], way[1:], mark, cut)
            pieces += [_varint(number << 3 | BYTES), _varint(len(short)), short]
        else:
            pieces.append(data[start:end])
    return b"".join(pieces)


def _fields(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """The fields of one message: number, and where the field, its content and the next field begin.

    Raises ValueError for what is no message, or has more fields than a load call.
    """
    at = count = 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        if tag & 7 == VARINT:
            inside = at
            _, at = _read_varint(data, at)
        else:
            nbytes, inside = _length(data, tag & 7, at)
            at = inside + nbytes
        count += 1
        if at > len(data) or count > FIELDS_MAX:
            raise ValueError("no load call")
        yield tag >> 3, start, inside, at


def _length(data: memoryview, kind: int, at: int) -> tuple[int, int]:
    """Bytes of a field's content, and where it begins."""
    if kind == BYTES:
        return _read_varint(data, at)
    if kind == FIXED64:
        return 8, at
    if kind == FIXED32:
        return 4, at
    raise ValueError("no load call")


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("no load call")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
