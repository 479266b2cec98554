"""Inputs and outputs of a function: dtype, shape, and what the function is handed.  No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from tisfast.dtypes import BY_DTYPE
from tisfast.errors import BadRequest
from tisfast.types import BY_WIRE, DataType

TEXT: Final = BY_WIRE["BYTES"]
PYTHON_TYPES: Final[dict[type, tuple[str, str]]] = {
    float: ("FP64", "item"),
    int: ("INT64", "item"),
    bool: ("BOOL", "item"),
    bytes: ("BYTES", "item"),
    str: ("BYTES", "text"),
}
"""Of a plain type: the data type, and what the function is handed."""
LISTS: Final = {"item": "list", "text": "texts"}


class Shape(tuple[int, ...]):
    """The shape of an array in a type hint, without the batch dimension: Annotated[NDArray[np.float32], Shape(-1, 4)].

    -1 is a dimension of any size.
    """

    def __new__(cls, *sizes: int) -> Shape:
        """Raises BadRequest for what is no size."""
        return super().__new__(cls, checked_dims("Shape", sizes))

    def __reduce__(self) -> tuple[Any, ...]:
        """As a tuple: where a pickled function goes there may be no tisfast."""
        return tuple, (tuple(self),)


@dataclass(frozen=True)
class Tensor:
    """One input or output.  shape: without the batch dimension, -1 for any size; "": named by the function's argument.

    dtype: of numpy, or float, int, bool, str or bytes.
    """

    name: str = ""
    dtype: Any = np.float32
    shape: Sequence[int] = (-1,)
    optional: bool = False


class Slot(NamedTuple):
    """An input or output as it is served.

    kind: what the function is handed: "array", "item" (a Python number or bytes), "numpy_item", "text", "text_array",
    "list", "texts".
    """

    name: str
    datatype: DataType
    dims: tuple[int, ...]
    kind: str
    optional: bool = False


def checked_dims(where: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of a shape.  Raises BadRequest."""
    if isinstance(sizes, str) or not isinstance(sizes, Sequence):
        raise BadRequest(f"{where}: {sizes!r:.200} is no shape: give the sizes of its dimensions, as in (-1, 4)")
    wrong = [
        size
        for size in sizes
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or (size < 1 and size != -1)
    ]
    if wrong:
        raise BadRequest(
            f"{where}: {wrong[0]!r} is no size of a dimension: give a whole number from 1, or -1 for any size"
        )
    return tuple(int(size) for size in sizes)


def datatype_of(dtype: Any, where: str) -> tuple[DataType, str]:
    """The data type of a dtype, and what the function is handed.  Raises BadRequest."""
    if dtype in (str, np.str_):
        return TEXT, "text_array"
    if dtype is bytes or dtype is np.bytes_:
        return TEXT, "array"
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if found is not None and found.kind == "U":
        return TEXT, "text_array"
    if found is not None and found.kind == "S":
        return TEXT, "array"
    datatype = BY_DTYPE.get(found.newbyteorder("=")) if found is not None else None
    if datatype is None:
        known = ", ".join(str(each) for each in BY_DTYPE if each.kind != "O")
        raise BadRequest(f"{where}: {dtype!r} is no data type that is served; these are: {known}, str and bytes")
    return datatype, "array"


def checked_tensors(given: Any, title: str, option: str) -> Sequence[Any]:
    """What an option gives.  Raises BadRequest where it is no list."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadRequest(f"{title}: {option} must be a list of tisfast.Tensor, not {given!r:.200}")
    return given


def slot_of_tensor(tensor: Any, name: str, where: str) -> Slot:
    """The slot of what a caller gave.  Raises BadRequest."""
    if not isinstance(tensor, Tensor):
        raise BadRequest(f"{where}: {tensor!r} is no tisfast.Tensor; give Tensor(name, dtype, shape)")
    datatype, kind = datatype_of(tensor.dtype, where)
    dims = checked_dims(where, tensor.shape)
    if not dims:
        return Slot(name, datatype, (1,), "text" if kind == "text_array" else "numpy_item", tensor.optional)
    return Slot(name, datatype, dims, kind, tensor.optional)


def slot_of_value(value: Any, name: str, where: str, *, batched: bool) -> Slot:
    """The slot of a sample value: the first dimension of an array may vary, the others are as in the sample.

    Raises BadRequest.
    """
    for plain, (wire, kind) in PYTHON_TYPES.items():
        if type(value) is plain:
            return _plain(name, BY_WIRE[wire], kind, where, batched)
    if isinstance(value, (list, tuple)) and value and type(value[0]) in PYTHON_TYPES:
        wire, kind = PYTHON_TYPES[type(value[0])]
        return Slot(name, BY_WIRE[wire], (1,) if batched else (-1,), LISTS[kind])
    array = _sampled(value, where)
    datatype, kind = datatype_of(array.dtype, where)
    if not array.shape:
        return _plain(name, datatype, "numpy_item", where, batched)
    dims = array.shape[1:] if batched else (-1, *array.shape[1:])
    return Slot(name, datatype, tuple(max(1, size) if size >= 0 else size for size in dims) or (1,), kind)


def _sampled(value: Any, where: str) -> np.ndarray[Any, Any]:
    """Its array.  Raises BadRequest for what is no tensor: None, an object, lists of different lengths."""
    try:
        array = np.asarray(value)
    except Exception as error:  # whatever an object that claims to be an array raises
        raise BadRequest(f"{where} is {value!r:.100}, of which no array can be made: {error}") from error
    if array.dtype.hasobject and not all(isinstance(item, (str, bytes)) for item in array.flat):
        raise BadRequest(
            f"{where} is {value!r:.100}, of which no tensor can be made: give an array of numbers, bool, str or bytes, "
            "a list of these, or one of them"
        )
    return array


def _plain(name: str, datatype: DataType, kind: str, where: str, batched: bool) -> Slot:
    if batched:
        raise BadRequest(
            f"{where} is one value, and a function that is served with batch= is handed arrays, with the rows of "
            "several requests: take an array or a list there, or leave batch= out"
        )
    return Slot(name, datatype, (1,), kind)
