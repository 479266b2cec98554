"""Inputs and outputs: names, types, shapes, reshapes.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tisfast import limits
from tisfast.config import error_texts
from tisfast.config.error_report import KeyPath, Report
from tisfast.config.schema import Message
from tisfast.types import BY_CODE

FORMAT_NONE: Final = 0
IMAGE_DIMS: Final = 3  # NHWC and NCHW without the batch dimension
VARIABLE: Final = -1


@dataclass(frozen=True)
class TensorConfig:
    """One input or output.

    dtype: code of types.DataType; dims: as clients see it, without the batch dimension, -1 for variable;
    worker_dims: as the model sees it, which differs from dims when the file says `reshape`;
    label_filename: relative to the model folder, "" for none.
    """

    name: str
    dtype: int
    dims: tuple[int, ...]
    worker_dims: tuple[int, ...]
    optional: bool
    ragged: bool
    label_filename: str

    @property
    def reshaped(self) -> bool:
        """Whether the worker gets another shape than the client sent."""
        return self.worker_dims != self.dims


def read(
    message: Message, report: Report, *, partial: bool = False
) -> tuple[tuple[TensorConfig, ...], tuple[TensorConfig, ...]]:
    """Inputs and outputs of the message; what is wrong goes to the report.

    partial: types and dims may still be missing, because the model's auto_complete_config will be asked for them.
    """
    inputs = _read_all(message, "input", report, partial)
    outputs = _read_all(message, "output", report, partial)
    _check_count(message, "input", len(inputs), limits.INPUTS_MAX, report)
    _check_count(message, "output", len(outputs), limits.OUTPUTS_MAX, report)
    return inputs, outputs


def _read_all(message: Message, role: str, report: Report, partial: bool) -> tuple[TensorConfig, ...]:
    tensors = getattr(message, role)
    seen: dict[str, int] = {}
    for index, tensor in enumerate(tensors):
        _Check(message, role, index, report, partial).all()
        if tensor.name and seen.setdefault(tensor.name, index) != index:
            report.wrong(f"model {role} '{tensor.name}' is declared more than once for {message.name}",
                       (role, index, "name"), hint=f"rename or remove one of the two {role}s")  # fmt: skip
    return tuple(_tensor(tensor) for tensor in tensors)


def _tensor(tensor: Message) -> TensorConfig:
    dims = tuple(tensor.dims)
    known = tensor.DESCRIPTOR.fields_by_name
    return TensorConfig(
        name=tensor.name,
        dtype=tensor.data_type,
        dims=dims,
        worker_dims=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else dims,
        optional=tensor.optional if "optional" in known else False,
        ragged=tensor.allow_ragged_batch if "allow_ragged_batch" in known else False,
        label_filename=tensor.label_filename if "label_filename" in known else "",
    )


def _check_count(message: Message, role: str, count: int, most: int, report: Report) -> None:
    if count > most:
        report.wrong(f"model '{message.name}' has {count} {role}s, more than {most}", (role, most),
                   hint=f"join some {role}s into one tensor")  # fmt: skip


class _Check:
    """The rules for one tensor.  Wordings up to "for MODEL" are Triton's, clients and tests match on them."""

    def __init__(self, message: Message, role: str, index: int, report: Report, partial: bool) -> None:
        self.partial = partial
        self.model, self.max_batch_size = message.name, message.max_batch_size
        self.role, self.path, self.report = role, (role, index), report
        self.tensor = getattr(message, role)[index]
        self.called = f"model {role} '{self.tensor.name}'"

    def all(self) -> None:
        if not self.tensor.name:
            self.fail(f"model {self.role} must specify 'name'", "name", f'add name: "..." to this {self.role}')
        if not self.tensor.data_type and not self.partial:
            self.fail(f"{self.called} must specify 'data_type'", "data_type", "for example data_type: TYPE_FP32")
        elif self.tensor.data_type and self.tensor.data_type not in BY_CODE:
            self.fail(f"{self.called} has the unknown data_type {self.tensor.data_type}", "data_type", "")
        self.dims()
        self.reshape()
        self.special()

    def fail(self, text: str, key: str, hint: str, *below: str | int) -> None:
        path: KeyPath = (*self.path, key, *below)
        self.report.wrong(f"{text} for {self.model}", path, hint=hint)

    def dims(self) -> None:
        dims = self.tensor.dims
        if not dims and not self.partial:
            self.fail(f"{self.called} must specify 'dims'", "dims",
                      "for example dims: [ 4 ], without the batch dimension; -1 where it varies")  # fmt: skip
        for index, dim in enumerate(dims):
            if dim < 1 and dim != VARIABLE:
                self.fail(error_texts.no_dimension(self.called), "dims", f"dims[{index}] is {dim}", index)
        if len(dims) + (self.max_batch_size > 0) > limits.TENSOR_RANK_MAX:
            self.fail(f"{self.called} has {len(dims)} dimensions, more than {limits.TENSOR_RANK_MAX}", "dims",
                      "join some of them")  # fmt: skip

    def reshape(self) -> None:
        if not self.tensor.HasField("reshape") or not self.tensor.dims:
            return
        shape, dims = list(self.tensor.reshape.shape), list(self.tensor.dims)
        if not shape and self.max_batch_size == 0:
            self.fail(f"{self.called} cannot have empty reshape for non-batching model as scalar tensors are not "
                      "supported", "reshape", "use shape: [ 1 ], or set max_batch_size")  # fmt: skip
            return
        wrong = [index for index, dim in enumerate(shape) if dim < 1 and dim != VARIABLE]
        for index in wrong:
            text = error_texts.no_dimension(self.called, "reshape dimensions")
            self.fail(text, "reshape", f"shape[{index}] is {shape[index]}", "shape", index)
        if not wrong and _fixed_sizes(shape) != _fixed_sizes(dims):
            self.fail(f"{self.called} has different size for dims and reshape", "reshape",
                      f"dims {dims} and shape {shape} must hold equally many elements, and the dimensions between "
                      "two -1 too", "shape")  # fmt: skip

    def special(self) -> None:
        if self.tensor.is_shape_tensor:
            self.fail("shape tensors are only supported for TensorRT platform", "is_shape_tensor", "remove it")
        if self.tensor.is_non_linear_format_io:
            self.fail("Non-linear IO format is only supported for the TensorRT platform", "is_non_linear_format_io",
                      "remove it")  # fmt: skip
        image = self.role == "input" and self.tensor.format != FORMAT_NONE and len(self.tensor.dims) > 0
        if image and len(self.tensor.dims) != IMAGE_DIMS:
            self.fail("model input NHWC/NCHW require 3 dims", "format",
                      f"'{self.tensor.name}' has {len(self.tensor.dims)}; or remove 'format'")  # fmt: skip


def _fixed_sizes(dims: Sequence[int]) -> list[int]:
    """Elements of each run of fixed dimensions between the variable ones."""
    runs: list[list[int]] = [[]]
    for dim in dims:
        if dim == VARIABLE:
            runs.append([])
        else:
            runs[-1].append(dim)
    return [prod(run) for run in runs]
