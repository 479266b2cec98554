"""Requests that each instance executes before it is ready (row 15.42).  Layer 2 (config)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tisfast import limits
from tisfast.config.report import KeyPath, Report
from tisfast.config.schema import Message

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


def read(message: Message, report: Report) -> tuple[WarmUpSample, ...]:
    """The samples of a message that ask for anything; what is wrong goes to the report."""
    return tuple(
        _sample(message, index, report) for index, given in enumerate(message.model_warmup) if given.batch_size
    )


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
