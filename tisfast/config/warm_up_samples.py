"""Requests that each instance executes before it is ready.  Layer 2 (config)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tisfast import limits
from tisfast.config.error_report import KeyPath, Report
from tisfast.config.schema import Message
from tisfast.config.tensor_config import VARIABLE, TensorConfig
from tisfast.types import BY_CODE

ZERO: Final = "zero_data"
RANDOM: Final = "random_data"
FILE: Final = "input_data_file"


@dataclass(frozen=True)
class WarmUpInput:
    """One tensor of a sample.

    dtype: code of types.DataType; dims: without the batch dimension; source: ZERO, RANDOM or FILE; file: relative to
    the model's folder `warmup`.
    """

    name: str
    dtype: int
    dims: tuple[int, ...]
    source: str
    file: str = ""


@dataclass(frozen=True)
class WarmUpSample:
    """`requests` equal requests of batch size 1, executed together, `count` times."""

    name: str
    requests: int
    count: int
    inputs: tuple[WarmUpInput, ...]


def read(message: Message, report: Report, inputs: tuple[TensorConfig, ...] | None) -> tuple[WarmUpSample, ...]:
    """The samples of a message that ask for anything; what is wrong goes to the report.

    inputs: those of the model, which samples must fit; None while the model may still complete them.
    """
    asked = [index for index, given in enumerate(message.model_warmup) if given.batch_size]
    samples = tuple(_sample(message, index, report) for index in asked)
    if inputs is not None and not (report.is_broken(("input",)) or report.is_broken(("max_batch_size",))):
        for index, sample in zip(asked, samples, strict=True):
            _Fit(message, sample, ("model_warmup", index), report).check(inputs)
    return samples


def _sample(message: Message, index: int, report: Report) -> WarmUpSample:
    given, path = message.model_warmup[index], ("model_warmup", index)
    if given.batch_size > limits.SUBMIT_SLOTS:
        report.wrong(f"warmup sample '{given.name}' asks for {given.batch_size} requests in one execution, more than "
                     f"{limits.SUBMIT_SLOTS}, for {message.name}", (*path, "batch_size"),
                     hint="use 'count' for more executions")  # fmt: skip
    controls = {control.name for control in message.sequence_batching.control_input}
    inputs = (
        _input(message, name, value, (*path, "inputs", name), report)
        for name, value in sorted(given.inputs.items())
        if name not in controls or not _is_neutral(message, name, value, (*path, "inputs", name), report)
    )
    return WarmUpSample(given.name, given.batch_size, max(1, given.count), tuple(inputs))


def _is_neutral(message: Message, name: str, value: Message, path: KeyPath, report: Report) -> bool:
    """Control inputs are made from a request's flags and sequence id, and those of a warm-up are all zero."""
    if value.WhichOneof("input_data_type") != ZERO:
        report.wrong(f"warmup setting gives the control input '{name}' other data than zero_data, which is not served, "
                     f"for {message.name}", path, hint="write zero_data: true, or leave it out")  # fmt: skip
    return True


def _input(message: Message, name: str, value: Message, path: KeyPath, report: Report) -> WarmUpInput:
    source = value.WhichOneof("input_data_type")
    if source is None:
        report.wrong(f"warmup setting expects input '{name}' to have input_data_type set", path,
                     hint="add zero_data: true, random_data: true or input_data_file")  # fmt: skip
    if any(dim < 0 for dim in value.dims):
        report.wrong(
            f"warmup setting expects all variable-size dimensions are specified for input '{name}'",
            (*path, "dims"), hint="give each dimension a size: a warm-up is a request",
        )  # fmt: skip
    file = value.input_data_file if source == FILE else ""
    if source == FILE and not _is_inside(file):
        report.wrong(f"warmup setting for input '{name}' names the file '{file}', which is not in the folder 'warmup' "
                     f"for {message.name}", (*path, FILE), hint="give a path below warmup/, without '..'")  # fmt: skip
    return WarmUpInput(name, value.data_type, tuple(value.dims), source or ZERO, file)


def _is_inside(file: str) -> bool:
    return bool(file) and not file.startswith("/") and ".." not in file.split("/") and "\0" not in file


class _Fit:
    """Checks that a sample is a request that the model takes.  Texts are those of requests (wire/check_request.pyx)."""

    def __init__(self, message: Message, sample: WarmUpSample, path: KeyPath, report: Report) -> None:
        self._model, self._batched = message.name, message.max_batch_size > 0
        self._sample, self._path, self._report = sample, path, report

    def check(self, inputs: Sequence[TensorConfig]) -> None:
        known = {tensor.name: tensor for tensor in inputs}
        self._lacking(inputs)
        for given in self._sample.inputs:
            if given.name in known:
                self._tensor(given, known[given.name])
            else:
                self._report.wrong(f"unexpected inference input '{given.name}' for model '{self._model}' (its inputs "
                                   f"are {', '.join(known)})", (*self._path, "inputs", given.name))  # fmt: skip

    def _lacking(self, inputs: Sequence[TensorConfig]) -> None:
        given = {each.name for each in self._sample.inputs}
        lacking = [tensor.name for tensor in inputs if not tensor.optional and tensor.name not in given]
        if not lacking or self._report.is_broken((*self._path, "inputs")):
            return
        required, most = sum(not tensor.optional for tensor in inputs), len(inputs)
        count = f"{most} inputs" if required == most else f"number of inputs between {required} and {most}"
        self._report.wrong(
            f"expected {count} but got {len(given)} inputs for model '{self._model}'. Got input(s) "
            f"[{_quoted(sorted(given))}], but missing required input(s) [{_quoted(lacking)}]. Please provide all "
            "required input(s).", self._path, hint=f"add them to the warm-up sample '{self._sample.name}'",
        )  # fmt: skip

    def _tensor(self, given: WarmUpInput, wanted: TensorConfig) -> None:
        path = (*self._path, "inputs", given.name)
        if given.dtype != wanted.dtype and wanted.dtype in BY_CODE:
            dtype = BY_CODE[given.dtype].wire if given.dtype in BY_CODE else "<invalid>"
            self._report.wrong(
                f"inference input '{given.name}' data-type is '{dtype}', but model '{self._model}' expects "
                f"'{BY_CODE[wanted.dtype].wire}'", (*path, "data_type"),
                hint=f"write data_type: {BY_CODE[wanted.dtype].config}",
            )  # fmt: skip
        if not _fits(given.dims, wanted.dims) and min(given.dims, default=0) >= 0:
            expected, got = wanted.dims, given.dims
            if self._batched:
                expected, got = (VARIABLE, *expected), (1, *got)
            self._report.wrong(
                f"unexpected shape for input '{given.name}' for model '{self._model}'. Expected {_shape(expected)}, "
                f"got {_shape(got)}", (*path, "dims"),
                hint="give dims without the batch dimension" if self._batched else "",
            )  # fmt: skip


def _quoted(names: Sequence[str]) -> str:
    return ",".join(f"'{name}'" for name in names)


def _shape(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"


def _fits(dims: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(dims) == len(wanted) and all(want in (VARIABLE, dim) for dim, want in zip(dims, wanted, strict=True))
