"""Control inputs: tensors that tell a model where in which sequence it is.  Layer 2 (config)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tisfast.config.error_report import KeyPath, Report
from tisfast.config.schema import Message
from tisfast.types import BY_CODE, BY_WIRE

ControlKind: TypeAlias = Literal["START", "READY", "END", "CORRID"]
KINDS: Final[tuple[ControlKind, ...]] = ("START", "READY", "END", "CORRID")  # ModelSequenceBatching.Control.Kind
VALUES: Final = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}
CORRID_TYPES: Final = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")


@dataclass(frozen=True)
class ControlInput:
    """One control input.  dtype: code of types.DataType; the two values are 0 and 0 for CORRID, which has none."""

    name: str
    kind: ControlKind
    dtype: int
    false_value: float = 0
    true_value: float = 0


def read_controls(message: Message, report: Report) -> tuple[ControlInput, ...]:
    """The control inputs in the order of the message; what is wrong goes to the report.  Wordings are Triton's."""
    names: set[str] = set()
    kinds: set[ControlKind] = set()
    controls = []
    for index, written in enumerate(message.sequence_batching.control_input):
        path = ("sequence_batching", "control_input", index)
        _check_name(message, written, path, names, report)
        names.add(written.name)
        for number, control in enumerate(written.control):
            kind = KINDS[control.kind]
            if kind in kinds:
                report.wrong(f"sequence batching specifies multiple {_shown(kind)} tensors for {message.name}",
                           (*path, "control", number), hint="keep one of them")  # fmt: skip
            kinds.add(kind)
            read = _correlation if kind == "CORRID" else _truth
            controls.append(read(message.name, written.name, kind, control, (*path, "control", number), report))
    return tuple(controls)


def _check_name(message: Message, written: Message, path: KeyPath, names: set[str], report: Report) -> None:
    model, name = message.name, written.name
    if not name:
        report.wrong(f"sequence batching control tensor must have a name for {model}", (*path, "name"),
                   hint='add name: "..."')  # fmt: skip
    elif name in names or len(written.control) > 1:
        report.wrong(
            f"sequence batching control tensor '{name}' is specified for multiple control kinds for {model}",
            (*path, "name"), hint="give each kind a tensor of its own",
        )  # fmt: skip
    elif any(tensor.name == name for tensor in message.input):
        report.wrong(f"sequence batching control tensor '{name}' is an input of its own for {model}", (*path, "name"),
                   hint="remove it from 'input': the server adds it")  # fmt: skip


def _truth(model: str, name: str, kind: ControlKind, control: Message, path: KeyPath, report: Report) -> ControlInput:
    given = [key for key in VALUES if len(getattr(control, key))]
    if not given:
        text = "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for "
        report.wrong(f"{text}{_shown(kind)} for {model}", path, hint="for example int32_false_true: [ 0, 1 ]")
        return ControlInput(name, kind, BY_WIRE["INT32"].code)
    if len(given) > 1:
        text = "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
        report.wrong(f"{text}'bool_false_true' for {_shown(kind)} for {model}", (*path, given[1]), hint="keep one")
    key = given[0]
    values = list(getattr(control, key))
    if len(values) != 2:
        report.wrong(f"sequence batching control '{key}' must have exactly 2 entries for {_shown(kind)} for {model}",
                   (*path, key), hint=f"it has {len(values)}: what is false, then what is true")  # fmt: skip
        values = [0, 1]
    return ControlInput(name, kind, BY_WIRE[VALUES[key]].code, *values)


def _correlation(
    model: str, name: str, kind: ControlKind, control: Message, path: KeyPath, report: Report
) -> ControlInput:
    given = [key for key in VALUES if len(getattr(control, key))]
    if given:
        text = "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
        report.wrong(f"{text} for {_shown(kind)} for {model}", (*path, given[0]), hint="it carries the sequence's id")
    known = BY_CODE.get(control.data_type)
    if known is None or known.wire not in CORRID_TYPES:
        report.wrong(
            f"unexpected data type for control {_shown(kind)} for {model}. Allowed data types are TYPE_UINT64, "
            "TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING", (*path, "data_type"),
            hint="for example data_type: TYPE_UINT64",
        )  # fmt: skip
    return ControlInput(name, kind, control.data_type)


def _shown(kind: ControlKind) -> str:
    return f"CONTROL_SEQUENCE_{kind}"
