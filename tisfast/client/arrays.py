"""numpy arrays as tensors of the wire, and back.  Layer 3 (client)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tisfast.dtypes import BY_DTYPE
from tisfast.errors import BadRequest, BadResponse
from tisfast.types import BY_WIRE, DATA_TYPES
from tisfast.wire.buffer_tensor import BufferTensor, pack_strings

Array = NDArray[Any]

NUMPY: Final[dict[str, np.dtype[Any]]] = {kind.wire: np.dtype(kind.numpy or "<f4") for kind in DATA_TYPES}
"""What an output of each KServe data type becomes; BF16, which numpy does not have, becomes float32."""
FLOAT16_TOP: Final = 0x7FFF


def datatype_of(array: Array) -> str:
    """The KServe data type of an array.  Raises BadRequest for one that none has."""
    if array.dtype.kind in "SU":
        return "BYTES"
    if array.dtype.name == "bfloat16":
        return "BF16"
    found = BY_DTYPE.get(array.dtype)
    if found is None:
        raise BadRequest(f"an array of {array.dtype} is no tensor: known are {', '.join(map(str, BY_DTYPE))}")
    return found.wire


def tensor_of(name: str, datatype: str, array: Array) -> BufferTensor:
    """A tensor of this array, whose memory is not copied where it need not be.

    The array must not change before the answer is there.  Raises BadRequest.
    """
    if datatype == "BYTES":
        elements = [_encoded(name, each) for each in array.ravel().tolist()]
        return BufferTensor(name, datatype, array.shape, pack_strings(elements))
    if datatype == "BF16" and array.dtype == np.float32:
        array = _rounded(array)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    data: Any = array.view(np.uint16) if datatype == "BF16" else array
    return BufferTensor(name, datatype, array.shape, data)


def _encoded(name: str, element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytearray | memoryview):
        return bytes(element)
    raise BadRequest(f"input '{name}' of BYTES has the element {element!r:.60}; its elements must be bytes or str")


def _rounded(array: Array) -> Array:
    """The upper halves of float32 numbers, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = (bits + FLOAT16_TOP + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def array_of(tensor: BufferTensor) -> Array:
    """The array of an output: a view of the received bytes; strings are bytes objects, BF16 becomes float32."""
    if tensor.region is not None:
        raise BadResponse(f"output '{tensor.name}' lies in shared memory, where nobody asked for it")
    if tensor.datatype == "BYTES":
        array = np.empty(len(strings := tensor.strings()), np.object_)
        array[:] = strings
        return array.reshape(tensor.shape)
    if tensor.datatype == "BF16":
        halves = np.frombuffer(tensor.buffer(), np.uint16) if tensor.nbytes else np.empty(0, np.uint16)
        return (halves.astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    if tensor.nbytes == 0:
        return np.empty(tensor.shape, NUMPY[tensor.datatype])
    return np.ndarray(tensor.shape, NUMPY[tensor.datatype], tensor.memory())


def item_bytes(datatype: str) -> int:
    """Bytes of an element, 0 for BYTES."""
    return BY_WIRE[datatype].size


class Classification(NamedTuple):
    """One entry of an output that was asked for as classes.  number: of the element that has the score."""

    score: float
    number: int
    label: str


def classification(array: Array) -> list[Classification]:
    """The entries of an output that was asked for with `classes=`, in order.  Raises BadRequest for another output."""
    found = []
    for entry in array.ravel().tolist():
        parts = entry.decode("utf-8", "replace").split(":", 2) if isinstance(entry, bytes) else []
        try:
            found.append(Classification(float(parts[0]), int(parts[1]), parts[2] if len(parts) > 2 else ""))
        except (ValueError, IndexError):
            raise BadRequest(f"{entry!r:.60} is no classification, which is SCORE:INDEX[:LABEL]") from None
    return found
