"""A caller's values against a model's metadata: the tensors of a request, or an error that names the input.

Layer 3 (client).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tisfast.client.arrays import NUMPY, Array, datatype_of, tensor_of
from tisfast.errors import BadRequest, BadResponse
from tisfast.types import BY_WIRE
from tisfast.wire.buffer_tensor import BufferTensor


class TensorMetadata(NamedTuple):
    """An input or output: its name, KServe data type and shape, where -1 is any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        """For errors: FP32[-1, 4]."""
        return f"{self.datatype}{list(self.shape)}"


class ModelMetadata(NamedTuple):
    """What a server says of a model."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


def metadata_of(answer: Any) -> ModelMetadata:
    """From the answer of a metadata call.  Raises BadResponse."""
    try:
        return ModelMetadata(
            answer["name"],
            tuple(answer.get("versions") or ()),
            answer.get("platform", ""),
            tuple(_tensor(entry) for entry in answer.get("inputs") or ()),
            tuple(_tensor(entry) for entry in answer.get("outputs") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadResponse(f"the server's metadata of a model cannot be read ({error!r}): {answer!r:.300}") from None


def _tensor(entry: Any) -> TensorMetadata:
    if entry["datatype"] not in BY_WIRE:
        raise ValueError(f"datatype {entry['datatype']!r:.60}")
    return TensorMetadata(entry["name"], entry["datatype"], tuple(int(dim) for dim in entry["shape"]))


class Signature:
    """The inputs of one model, as values are held against them."""

    def __init__(self, metadata: ModelMetadata) -> None:
        self.metadata = metadata
        self.model = metadata.name
        self.inputs = {each.name: each for each in metadata.inputs}
        self.output_names = tuple(each.name for each in metadata.outputs)
        self._checked = [(each.name, each.datatype, NUMPY[each.datatype], each.shape) for each in metadata.inputs]

    def bind(
        self, values: Sequence[Any], named: Mapping[str, Any], optional: frozenset[str] | None
    ) -> list[BufferTensor]:
        """The tensors of these values, by position or by name.

        Raises BadRequest, and Missing for inputs without value.
        optional: the inputs that may be left out; None: nobody has asked which, and Missing is raised for all.
        """
        if len(values) > len(self._checked):
            raise self._too_many(values)
        pairs = zip(self._checked, values, strict=False)
        tensors = [self.tensor(spec, value) for spec, value in pairs if value is not None]
        if len(values) == len(self._checked) and not named:
            return self._complete(tensors, optional)
        taken = {tensor.name for tensor in tensors}
        for name in named:
            if name not in self.inputs:
                raise BadRequest(f"model '{self.model}' has no input '{name}', its inputs are {self._shown()}")
            if name in taken:
                raise BadRequest(f"input '{name}' of model '{self.model}' was given twice, by position and by name")
        for spec in self._checked:
            if (value := named.get(spec[0])) is not None:
                tensors.append(self.tensor(spec, value))
        return self._complete(tensors, optional)

    def by_position(self, values: Sequence[Any]) -> dict[str, Any]:
        """Values in the inputs' order, by name.  Raises BadRequest for too many."""
        if len(values) > len(self._checked):
            raise self._too_many(values)
        return dict(zip(self.inputs, values, strict=False))

    def batch_of_one(self, at: int | str, value: Any) -> Array:
        """An input of one sample as a batch.  Raises BadRequest for an input that there is not."""
        array = self.array(at, value)
        if not array.shape and not isinstance(value, np.ndarray) and self._spec(at)[3][1:] in ((1,), (-1,)):
            array = array.reshape(1)  # one plain value, as without batches
        return array[np.newaxis]

    def array(self, at: int | str, value: Any) -> Array:
        """An input's value as an array, by position or name.  Raises BadRequest for an input that there is not."""
        spec = self._spec(at)
        return value if type(value) is np.ndarray else self._array(spec, value)

    def _spec(self, at: int | str) -> tuple[str, str, np.dtype[Any], tuple[int, ...]]:
        spec = next((each for i, each in enumerate(self._checked) if at in (i, each[0])), None)
        if spec is None:
            what = f"no input '{at}', its inputs are" if isinstance(at, str) else f"{len(self._checked)} inputs:"
            raise BadRequest(f"model '{self.model}' has {what} {self._shown()}")
        return spec

    def _complete(self, tensors: list[BufferTensor], optional: frozenset[str] | None) -> list[BufferTensor]:
        if len(tensors) < len(self._checked):
            given = {tensor.name for tensor in tensors}
            missing = [name for name in self.inputs if name not in given and name not in (optional or ())]
            if missing:
                raise Missing(
                    f"model '{self.model}' wants the inputs {self._shown()}; {', '.join(map(repr, missing))} "
                    f"{'is' if len(missing) == 1 else 'are'} missing"
                )
        return tensors

    def tensor(self, spec: tuple[str, str, np.dtype[Any], tuple[int, ...]], value: Any) -> BufferTensor:
        """The tensor of one input."""
        name, datatype, dtype, dims = spec
        array = value if type(value) is np.ndarray else self._array(spec, value)
        if array.dtype != dtype and not self._accepted(datatype, array):
            wanted = "bytes or str" if datatype == "BYTES" else dtype
            raise BadRequest(
                f"input '{name}' of model '{self.model}' wants {datatype} ({wanted}), "
                f"an array of {array.dtype} was given; convert it with .astype()"
            )
        shape = array.shape
        if shape != dims and (
            len(shape) != len(dims) or any(want not in (-1, have) for want, have in zip(dims, shape, strict=True))
        ):
            raise BadRequest(
                f"input '{name}' of model '{self.model}' wants the shape {list(dims)} (-1 is any size), "
                f"an array of shape {list(shape)} was given"
            )
        return tensor_of(name, datatype, array)

    def _array(self, spec: tuple[str, str, np.dtype[Any], tuple[int, ...]], value: Any) -> Array:
        """Of lists and numbers, which have no data type of their own; arrays of other libraries keep theirs."""
        name, datatype, dtype, dims = spec
        if isinstance(value, np.ndarray):  # of a class of its own
            if isinstance(value, np.ma.MaskedArray):
                raise BadRequest(
                    f"input '{name}' of model '{self.model}' was given a masked array, and a request carries no mask: "
                    "say what stands in the masked places, with .filled(value)"
                )
            return value
        if isinstance(value, Mapping):
            raise BadRequest(
                f"input '{name}' of model '{self.model}' was given a {type(value).__name__}; "
                f"to give inputs by name, write model({name}=...), model(**inputs) or model.infer(inputs)"
            )
        try:
            own = hasattr(value, "__array__") or hasattr(value, "__array_interface__")
            found = np.asarray(value, dtype=np.object_ if datatype == "BYTES" and not own else None)
            if not found.shape and dims in ((1,), (-1,)):
                found = found.reshape(1)  # one plain value, or a scalar of numpy
            if own:
                return found
        except (TypeError, ValueError) as error:
            raise BadRequest(f"input '{name}' of model '{self.model}' cannot be made an array: {error}") from None
        if datatype == "BYTES" or found.size == 0:
            return found.astype(dtype)
        whole = found.dtype.kind in "iu" and dtype.kind in "iu"
        if found.dtype.kind not in "biuf" or not (whole or np.can_cast(found.dtype, dtype, "same_kind")):
            return found
        cast = found.astype(dtype)
        return cast if dtype.kind == "f" or np.array_equal(cast, found) else found

    @staticmethod
    def _accepted(datatype: str, array: Array) -> bool:
        try:
            return datatype_of(array) == datatype
        except BadRequest:
            return False

    def _too_many(self, values: Sequence[Any]) -> BadRequest:
        have = f"{len(self._checked)} inputs ({self._shown()})"
        return BadRequest(f"model '{self.model}' has {have}, {len(values)} were given")

    def _shown(self) -> str:
        return ", ".join(f"{each.name}: {each}" for each in self.metadata.inputs) or "none"


class Missing(BadRequest):
    """Inputs have no value."""


def optional_inputs(config: Any) -> frozenset[str]:
    """The inputs that may be left out, by a model's configuration."""
    inputs = config.get("input", []) if isinstance(config, dict) else []
    return frozenset(entry["name"] for entry in inputs if isinstance(entry, dict) and entry.get("optional"))
