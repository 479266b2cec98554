"""Files of weights beside a graph of ONNX, without the package onnx, and without reading the graph as a whole.

Layer 5 (convert).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from tisfast.errors import BadRequest

LOCATION: Final = b"\x0a\x08location\x12"
"""Of a StringStringEntryProto: the field key, with its text, and the mark of the field value."""
EXTERNAL_DATA: Final = b"\x6a"
"""The mark of that entry in a TensorProto, in front of its length: entries of metadata have others."""
NAME_BYTES_MAX: Final = 4096
"""Of a path, on Linux."""


def files_beside(graph: Path) -> list[str]:
    """Files that exist beside the graph and that its tensors name, relative to its folder, in order.

    Raises BadRequest for one outside of that folder, which no model folder could hold; OSError.
    """
    found = set()
    with graph.open("rb") as file:
        if not graph.stat().st_size:  # which cannot be mapped
            return []
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.find(LOCATION)
            while at >= 0:
                name = _text(content, at + len(LOCATION))
                if name and _is_of_a_tensor(content, at, name) and os.path.isfile(graph.parent / name):
                    found.add(name)
                at = content.find(LOCATION, at + len(LOCATION))
    for each in found:
        if Path(each).is_absolute() or ".." in Path(each).parts:
            raise BadRequest(f"the graph {graph} names weights outside of its folder: {each}")
    return sorted(found)


def _is_of_a_tensor(content: mmap.mmap, at: int, name: str) -> bool:
    """Whether the entry of this key and value is one of `external_data`.  at: of the entry's content."""
    size = len(name.encode("utf-8", "surrogateescape"))
    head = EXTERNAL_DATA + _varint(len(LOCATION) + len(_varint(size)) + size)
    return content[max(at - len(head), 0) : at] == head


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _text(content: mmap.mmap, at: int) -> str:
    """A text with its length in front, as protobuf has it; "" for what is none: numbers may look like the mark."""
    size = shift = 0
    while shift < 21 and at < len(content):  # three bytes hold more than any path
        byte = content[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            text = content[at : at + size] if size <= NAME_BYTES_MAX else b""
            return text.decode("utf-8", "surrogateescape") if b"\0" not in text else ""
    return ""
