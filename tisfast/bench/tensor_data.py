"""One tensor of the input data, from JSON or from a file, as an array.  Layer 5 (bench)."""

from __future__ import annotations

import base64
import binascii
import json
import math
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from tisfast.client import TensorMetadata
from tisfast.client.arrays import NUMPY, Array, item_bytes
from tisfast.errors import BadRequest

LENGTH_BYTES: Final = 4
"""Before each string in binary form: its length, little-endian."""
DEPTH_MAX: Final = 32
"""Of nested lists."""


class Place(NamedTuple):
    """Where in the input data a value stands, for errors."""

    file: str
    key: str
    flag: str = "--input-data"

    def at(self, key: str) -> Place:
        """Something within."""
        return Place(self.file, f"{self.key}.{key}", self.flag)

    def wrong(self, what: str, remedy: str) -> BadRequest:
        """One sentence: file, key, value, what to do."""
        return BadRequest(f"{self.flag} {self.file}: {self.key} {what}; {remedy}")


def array_of_json(here: Place, value: Any, spec: TensorMetadata, dims: tuple[int, ...]) -> Array:
    """A flat or nested list, `{"b64": ...}`, or `{"content": one of these, "shape": [...]}`.  Raises BadRequest."""
    shape = None
    if isinstance(value, dict) and "content" in value:
        strange = sorted(set(value) - {"content", "shape"})
        if strange:
            raise here.at(strange[0]).wrong("is not known", 'write only "content" and "shape"')
        shape = _shape(here, value["shape"], spec, dims) if "shape" in value else None
        value = value["content"]
    if isinstance(value, dict):
        if set(value) != {"b64"} or not isinstance(value["b64"], str):
            raise here.wrong(
                f"is an object with the keys {sorted(value)}",
                'write {"b64": "..."} or {"content": [...], "shape": [...]}',
            )
        try:
            raw = base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise here.wrong(f"is no base64 ({error})", "write standard base64 without line ends") from None
        return _shaped(here, array_of_bytes(here, raw, spec), shape, spec, dims)
    flat, nested = _flat(here, value if isinstance(value, list) else [value])
    array = _typed(here, flat, spec)
    if shape is None and len(nested) > 1 and _fits(nested, dims):
        shape = nested
    return _shaped(here, array, shape, spec, dims)


def array_of_file(path: Path, spec: TensorMetadata, dims: tuple[int, ...]) -> Array:
    """Raw little-endian elements, lines of BYTES, or .npy.  Raises BadRequest."""
    here = Place(str(path), f"the file of '{spec.name}'")
    try:
        if path.suffix == ".npy" and not spec.name.endswith(".npy"):
            loaded = np.load(path, allow_pickle=False)
            shape = loaded.shape if _fits(loaded.shape, dims) else None
            return _shaped(here, _typed(here, loaded.ravel().tolist(), spec), shape, spec, dims)
        raw = path.read_bytes()
    except OSError as error:
        raise here.wrong(f"cannot be read ({error.strerror})", "make it readable") from None
    except ValueError as error:
        raise here.wrong(f"is no .npy file of numbers or strings ({error})", "write it with numpy.save") from None
    if spec.datatype == "BYTES":
        lines = raw.split(b"\n")
        return _shaped(here, _objects(lines[:-1] if lines[-1] == b"" else lines), None, spec, dims)
    return _shaped(here, array_of_bytes(here, raw, spec), None, spec, dims)


def array_of_bytes(here: Place, raw: bytes, spec: TensorMetadata) -> Array:
    """Elements in the binary form of a request: flat.  Raises BadRequest."""
    if spec.datatype == "BYTES":
        found, at = [], 0
        while at < len(raw):
            length = int.from_bytes(raw[at : at + LENGTH_BYTES], "little")
            at += LENGTH_BYTES
            if at + length > len(raw):
                raise here.wrong(
                    f"has a string of {length} bytes at byte {at - LENGTH_BYTES}, and ends at byte {len(raw)}",
                    "write before each string its length in 4 bytes, little-endian",
                )
            found.append(raw[at : at + length])
            at += length
        return _objects(found)
    size = item_bytes(spec.datatype)
    if len(raw) % size:
        raise here.wrong(f"has {len(raw)} bytes", f"an element of {spec.datatype} has {size}, so give a multiple of it")
    if spec.datatype == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, NUMPY[spec.datatype])


def _objects(strings: list[bytes]) -> Array:
    array = np.empty(len(strings), np.object_)
    array[:] = strings
    return array


def _flat(here: Place, value: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """The elements in row-major order, and the shape of the lists."""
    shape: list[int] = []
    level: list[Any] = value
    while True:
        shape.append(len(level) // max(math.prod(shape), 1) if shape else len(level))
        lists = [isinstance(each, list) for each in level]
        if not any(lists) or len(shape) > DEPTH_MAX:
            break
        if not all(lists) or len({len(each) for each in level}) > 1:
            raise here.wrong("has lists of unequal lengths", "write a flat list, or nested lists that form a tensor")
        level = [inner for each in level for inner in each]
    if len(shape) > DEPTH_MAX:
        raise here.wrong(f"has lists in lists deeper than {DEPTH_MAX}", "write a flat list")
    return level, tuple(shape)


def _typed(here: Place, flat: list[Any], spec: TensorMetadata) -> Array:
    """Elements of the tensor's data type; what does not fit is named."""
    datatype = spec.datatype
    if datatype == "BYTES":
        return _objects([_string(here, each, at) for at, each in enumerate(flat)])
    dtype = NUMPY[datatype]
    for at, each in enumerate(flat):
        if not _is_of(each, dtype):
            raise here.wrong(f"has the element {json.dumps(each, default=str)[:40]} at {at}", _wanted(datatype, dtype))
    if dtype.kind == "b":
        return np.array([bool(each) for each in flat], np.bool_)
    with np.errstate(over="ignore"):  # a float that is too large for its type becomes infinite, as in a model
        return np.array(flat, dtype)


def _is_of(value: Any, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "f":
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        return whole or isinstance(value, float)
    if dtype.kind == "b":
        return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    bounds = np.iinfo(dtype)
    return int(bounds.min) <= value <= int(bounds.max)


def _wanted(datatype: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind == "f":
        return f"{datatype} takes numbers"
    if dtype.kind == "b":
        return "BOOL takes true, false, 0 and 1"
    bounds = np.iinfo(dtype)
    return f"{datatype} takes whole numbers from {bounds.min} to {bounds.max}"


def _string(here: Place, value: Any, at: int) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise here.wrong(f"has the element {json.dumps(value, default=str)[:40]} at {at}", "BYTES takes strings")
    return value.encode("utf-8", "surrogatepass")


def _fits(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    return len(shape) == len(dims) and all(want in (-1, have) for want, have in zip(dims, shape, strict=True))


def _shape(here: Place, value: Any, spec: TensorMetadata, dims: tuple[int, ...]) -> tuple[int, ...]:
    good = isinstance(value, list) and all(isinstance(each, int) and not isinstance(each, bool) for each in value)
    # --shape is a default: what the data says may have other numbers in its place.
    own = spec.shape[len(spec.shape) - len(dims) :]
    if not good or any(each < 0 for each in value) or not _fits(tuple(value), tuple(own)):
        raise here.at("shape").wrong(
            f"is {json.dumps(value)[:60]}", f"the shape of '{spec.name}' is {list(own)} without the batch's dimension"
        )
    return tuple(value)


def _shaped(
    here: Place, array: Array, shape: tuple[int, ...] | None, spec: TensorMetadata, dims: tuple[int, ...]
) -> Array:
    """In its shape; where nothing says it, one free dimension follows from the number of elements."""
    if shape is None:
        known = math.prod(each for each in dims if each >= 0)
        free = sum(each < 0 for each in dims)
        if free > 1:
            raise here.wrong(
                f"has {array.size} elements for the shape {list(dims)}",
                f'say the shape with {{"content": ..., "shape": [...]}} or --shape {spec.name}:D1,D2',
            )
        if free and known and array.size % known == 0:
            shape = tuple(array.size // known if each < 0 else each for each in dims)
        else:
            shape = tuple(0 if each < 0 else each for each in dims)
    if array.size != math.prod(shape):
        raise here.wrong(
            f"has {array.size} elements",
            f"the shape {list(dims if -1 in dims else shape)} of '{spec.name}' ({spec.datatype}) takes "
            f"{math.prod(shape)} of a single request, without the batch's dimension",
        )
    return array.reshape(shape)
