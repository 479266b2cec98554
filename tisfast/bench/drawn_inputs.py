"""Random and zero inputs for a model, by its metadata.  Layer 5 (bench)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from tisfast.client import ModelMetadata, TensorMetadata
from tisfast.client.arrays import NUMPY, tensor_of
from tisfast.errors import BadRequest
from tisfast.wire.buffer_tensor import BufferTensor

LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", np.uint8)
BYTES_MAX: Final = 1 << 31
"""Of one input."""


class Strings(NamedTuple):
    """Elements of BYTES: so many random letters, or this text."""

    length: int = 128
    text: str = ""


LETTERS_128: Final = Strings()
"""perf_analyzer's default."""


class Drawn:
    """Makes the tensors of one request.  batches: the model's max_batch_size; shapes: of inputs with -1."""

    def __init__(  # noqa: PLR0913 - all that the command line says of it
        self,
        metadata: ModelMetadata,
        batches: int,
        batch_size: int,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        zero: bool = False,
        seed: int = 0,
        strings: Strings = LETTERS_128,
    ) -> None:
        self._metadata, self._batches, self._batch_size, self._shapes = metadata, batches, batch_size, shapes
        self._zero, self._random = zero, np.random.default_rng(seed)
        self._strings = strings
        known = {each.name for each in metadata.inputs}
        for name in shapes:
            if name not in known:
                raise BadRequest(
                    f"--shape names the input '{name}', which model '{metadata.name}' does not have; its inputs are "
                    f"{', '.join(sorted(known)) or 'none'}"
                )

    def tensors(self) -> list[BufferTensor]:
        """Raises BadRequest for an input whose shape nobody knows."""
        return [self._tensor(each) for each in self._metadata.inputs]

    def _tensor(self, spec: TensorMetadata) -> BufferTensor:
        shape = self._shape(spec)
        count = math.prod(shape)  # whole numbers of any size
        each = self._string_bytes() if spec.datatype == "BYTES" else NUMPY[spec.datatype].itemsize
        if count * max(each, 1) > BYTES_MAX:
            raise BadRequest(
                f"input '{spec.name}' of shape {list(shape)} has more than {BYTES_MAX} bytes, {each} in an element"
            )
        return tensor_of(spec.name, spec.datatype, self._values(spec.datatype, count).reshape(shape))

    def _shape(self, spec: TensorMetadata) -> tuple[int, ...]:
        dims = spec.shape[1:] if self._batches else spec.shape
        given = self._shapes.get(spec.name)
        if given is not None:
            pairs = zip(dims, given, strict=False)
            if len(given) != len(dims) or any(want not in (-1, have) for want, have in pairs):
                raise BadRequest(
                    f"--shape {spec.name}:{','.join(map(str, given))} does not fit the input, shaped {list(dims)}"
                    + (" without the batch's dimension" if self._batches else "")
                )
            dims = given
        if -1 in dims:
            example = ",".join("4" if dim == -1 else str(dim) for dim in dims)
            raise BadRequest(
                f"input '{spec.name}' of model '{self._metadata.name}' contains dynamic shape {list(dims)}, "
                f"provide shapes to send along with the request: --shape {spec.name}:{example}"
            )
        return (self._batch_size, *dims) if self._batches else dims

    def _values(self, datatype: str, count: int) -> np.ndarray[Any, Any]:
        if datatype == "BYTES":
            return self._texts(count)
        dtype = NUMPY[datatype]
        if self._zero:
            return np.zeros(count, dtype)
        if dtype.kind == "f":
            return self._random.random(count).astype(dtype)
        if dtype.kind == "b":
            return self._random.integers(0, 2, count).astype(dtype)
        return self._random.integers(0, 128, count).astype(dtype)

    def _string_bytes(self) -> int:
        return len(self._strings.text) if self._zero or self._strings.text else self._strings.length

    def _texts(self, count: int) -> np.ndarray[Any, Any]:
        found = np.empty(count, np.object_)
        if self._zero or self._strings.text:
            found[:] = [self._strings.text.encode("utf-8", "surrogateescape")] * count
        else:
            drawn = self._random.choice(LETTERS, (count, self._strings.length))
            found[:] = [row.tobytes() for row in drawn]
        return found
