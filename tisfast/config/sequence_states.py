"""Implicit state: tensors that the server keeps from request to request of a sequence.

Layer 2 (config).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from tisfast import limits
from tisfast.config import error_texts
from tisfast.config.error_report import KeyPath, Report
from tisfast.config.schema import Message
from tisfast.types import BY_CODE

VARIABLE: Final = -1
BYTES_HEAD: Final = 4  # of each element of a BYTES tensor: its length


@dataclass(frozen=True)
class InitialState:
    """The tensor that a sequence starts with.  dims: fixed, without batch dimension; data_file: in MODEL/initial_state,
    "" for zeros; nbytes: that it takes (of BYTES: that it takes at least).
    """

    dims: tuple[int, ...]
    data_file: str
    nbytes: int


@dataclass(frozen=True)
class State:
    """One pair of tensors.  dims: without batch dimension, -1 for variable; initial: None for undefined content."""

    input_name: str
    output_name: str
    dtype: int
    dims: tuple[int, ...]
    same_buffer: bool
    growable: bool
    initial: InitialState | None


def read_states(message: Message, report: Report) -> tuple[State, ...]:
    """The states in the order of the message; what is wrong goes to the report, in Triton's words where it has any."""
    batching = message.sequence_batching
    if len(batching.state) > limits.SEQUENCE_STATES_MAX:
        report.wrong(f"{len(batching.state)} states for {message.name}, more than {limits.SEQUENCE_STATES_MAX}",
                   ("sequence_batching", "state"), hint="join some into one tensor")  # fmt: skip
    inputs = {tensor.name for tensor in message.input} | {control.name for control in batching.control_input}
    outputs = {tensor.name for tensor in message.output}
    states = []
    for index, state in enumerate(batching.state):
        path = ("sequence_batching", "state", index)
        _check_name(state.input_name, "input_name", inputs, message.name, path, report)
        _check_name(state.output_name, "output_name", outputs, message.name, path, report)
        _check_shape(state, message.name, path, report)
        states.append(_state(state, message.name, path, report))
    return tuple(states)


def _state(state: Message, model: str, path: KeyPath, report: Report) -> State:
    return State(
        input_name=state.input_name,
        output_name=state.output_name,
        dtype=state.data_type,
        dims=tuple(state.dims),
        same_buffer=state.use_same_buffer_for_input_output,
        growable=state.use_growable_memory,
        initial=_initial(state, model, path, report),
    )


def _check_name(name: str, key: str, taken: set[str], model: str, path: KeyPath, report: Report) -> None:
    if not name:
        text = f"sequence batching state must specify '{key}' for {model}"
        report.wrong(text, (*path, key), hint=f'add {key}: "..."')
    elif name in taken:
        text = f"sequence batching state '{key}' '{name}' is the name of another tensor for {model}"
        report.wrong(text, (*path, key), hint="give it a name of its own: the server adds both to the model's")
    taken.add(name)


def _check_shape(state: Message, model: str, path: KeyPath, report: Report) -> None:
    called = f"sequence batching state '{state.input_name}'"
    if state.data_type not in BY_CODE:
        report.wrong(f"{called} must specify 'data_type' for {model}", (*path, "data_type"),
                   hint="for example data_type: TYPE_FP32")  # fmt: skip
    if not state.dims:
        report.wrong(f"{called} must specify 'dims' for {model}", (*path, "dims"),
                   hint="for example dims: [ 4 ], without the batch dimension; -1 where it varies")  # fmt: skip
    for number, dim in enumerate(state.dims):
        if dim < 1 and dim != VARIABLE:
            text = f"{error_texts.no_dimension(called)} for {model}"
            report.wrong(text, (*path, "dims", number), hint=f"dims[{number}] is {dim}")
    if state.use_growable_memory and not state.use_same_buffer_for_input_output:
        report.wrong(
            "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input name "
            f"'{state.input_name}'. for {model}", (*path, "use_growable_memory"),
            hint="set use_same_buffer_for_input_output: true",
        )  # fmt: skip


def _initial(state: Message, model: str, path: KeyPath, report: Report) -> InitialState | None:
    """The one initial state, or None."""
    if not state.initial_state:
        return None
    name, initial, path = state.input_name, state.initial_state[0], (*path, "initial_state", 0)
    if len(state.initial_state) > 1:
        report.wrong(
            f"initial_state field for state input '{name}' must contain exactly one or zero element. Found "
            f"'{len(state.initial_state)}' elements.", (*path[:-1], 1), hint="keep one",
        )  # fmt: skip
    wrong = _initial_mistake(state, initial)
    if wrong:
        report.wrong(*wrong[:1], (*path, wrong[1]), hint=f"in model {model}")
        return None
    return InitialState(tuple(initial.dims), initial.data_file, _nbytes(initial))


def _nbytes(initial: Message) -> int:
    item = BY_CODE[initial.data_type].size if initial.data_type in BY_CODE else 0
    return int(prod(initial.dims)) * (item or BYTES_HEAD)


def _initial_mistake(state: Message, initial: Message) -> tuple[str, str] | None:
    """The error of an initial state and its key; None when there is none."""
    name = state.input_name
    if initial.data_type != state.data_type:
        return (f"The data type used for 'initial_state' field of state '{name}' does not match the state data type.",
                "data_type")  # fmt: skip
    if not initial.name:
        return f"Field 'name' must be set when using initial_state for state input '{name}'.", "name"
    if wrong := _dims_mistake(state, initial):
        return wrong, "dims"
    if initial.WhichOneof("state_data") is None:
        return f"initial_state setting expects state'{name}' to have state_data set", "data_file"
    return None


def _dims_mistake(state: Message, initial: Message) -> str:
    name, nbytes = state.input_name, _nbytes(initial)
    if len(initial.dims) != len(state.dims):
        return (f"Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input "
                f"'{name}'. {len(initial.dims)} != {len(state.dims)}")  # fmt: skip
    for given, wanted in zip(initial.dims, state.dims, strict=True):
        if given < 0:
            return f"'initial_state' field for state input name '{name}' contains variable dimensions."
        if wanted not in (VARIABLE, given):
            return (f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. "
                    f"{given} != {wanted}")  # fmt: skip
    if nbytes > limits.STATE_BYTES_MAX:
        return f"'initial_state' of state input '{name}' has {nbytes} bytes, more than {limits.STATE_BYTES_MAX}"
    return ""
