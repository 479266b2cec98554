"""Tensors as traces show them: name, type, shape, and the numbers as text.  Layer 4 (telemetry).

Bytes are copied when a tensor passes and turned into text by the thread that writes.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tisfast import limits
from tisfast.errors import TisError
from tisfast.types import BY_CODE
from tisfast.wire.compose import input_tensors as request_tensors

if TYPE_CHECKING:
    from tisfast.wire.record import Answer, InferInput

_FORMATS: Final = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip


class TracedTensor(NamedTuple):
    """One tensor as it passed.  data: its first bytes, as on the wire; nbytes: all of them."""

    activity: str
    name: str
    datatype: str
    shape: list[int]
    data: bytes
    nbytes: int


def input_tensors(request: InferInput, room: int) -> list[TracedTensor]:
    """The inputs of a request that is about to be queued, from its record (workers/WIRE.md).

    room: bytes that may be copied of all of them.  Of what lies on a GPU none are: a copy would wait for it.
    """
    found = []
    for tensor in request_tensors(request):
        kept = min(tensor.nbytes, room, limits.TRACE_TENSOR_BYTES_MAX)
        try:
            data = b"" if tensor.file.device >= 0 else tensor.start(kept)
        except TisError:  # a client's memory, which is gone: the worker will say so, too
            data = b""
        room -= len(data)
        kind = BY_CODE[tensor.dtype].wire
        found.append(TracedTensor("TENSOR_QUEUE_INPUT", tensor.name, kind, list(tensor.shape), data, tensor.nbytes))
    return found


def output_tensors(answer: Answer, room: int) -> list[TracedTensor]:
    """The outputs of an answer.  room: bytes that may be copied of all of them; of what lies on a GPU none are."""
    found = []
    for position in range(answer.count):
        most = 0 if answer.is_on_gpu(position) else min(room, limits.TRACE_TENSOR_BYTES_MAX)
        name, datatype, shape, data, nbytes = answer.output_start(position, most)
        found.append(TracedTensor("TENSOR_BACKEND_OUTPUT", name, datatype, shape, data, nbytes))
        room -= len(data)
    return found


def tensor_text(tensor: TracedTensor) -> str:
    """The elements, comma-separated, as Triton writes them; "..." stands for those that were not copied."""
    elements = _strings(tensor.data) if tensor.datatype == "BYTES" else _numbers(tensor.datatype, tensor.data)
    return ",".join([*elements, *(["..."] if len(tensor.data) < tensor.nbytes else [])])


def _numbers(datatype: str, data: bytes) -> list[str]:
    if datatype == "BOOL":
        return ["true" if byte else "false" for byte in data]
    if datatype == "BF16":
        return [f"{struct.unpack('<f', bytes(2) + data[i : i + 2])[0]:g}" for i in range(0, len(data) - 1, 2)]
    code = _FORMATS[datatype]
    values = struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)
    return [f"{value:g}" for value in values] if code in "efd" else [str(value) for value in values]


def _strings(data: bytes) -> list[str]:
    """Elements are a length (4 bytes) and so many bytes."""
    found, at = [], 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            break
        found.append(json.dumps(data[at + 4 : end].decode(errors="replace"), ensure_ascii=False))
        at = end
    return found
