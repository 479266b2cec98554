"""batch_input and batch_output: tensors made of a batch, outputs cut by it.  Layer 2 (config)."""

from __future__ import annotations

from typing import Final

from tisfast.config.error_report import Report
from tisfast.config.schema import Message

INT32, FP32 = 8, 11  # DataType
SOURCES: Final = 1  # that every kind wants
KEYS: Final = ("batch_input", "batch_output")


def check(message: Message, report: Report) -> None:
    """Note what is wrong; texts up to "for MODEL" are Triton's.

    Names that are taken, too, as newer Triton does: 2.51 lets two tensors of one name pass.
    """
    inputs = {tensor.name for tensor in message.input}
    taken = set(inputs)
    for index, entry in enumerate(message.batch_input):
        path = ("batch_input", index)
        _check_sources(message, "input", index, inputs, report)
        if not entry.data_type:
            report.wrong("unexpected batch input data type 'TYPE_INVALID'", (*path, "data_type"),
                       hint="for example data_type: TYPE_INT32")  # fmt: skip
        elif entry.data_type not in (INT32, FP32):
            report.wrong(f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {message.name}",
                       (*path, "data_type"), hint=f"it is {_type_name(entry)}")  # fmt: skip
        for name in entry.target_name:
            if name in taken:
                report.wrong(f"target input name '{name}' can only be specified once for {message.name}",
                           (*path, "target_name"), hint="give it a name of its own")  # fmt: skip
            taken.add(name)
    _check_outputs(message, inputs, report)


def asked(message: Message) -> str:
    """The first key that only a model with execute_batch can serve, "" when there is none."""
    return next((key for key in KEYS if getattr(message, key)), "")


def _check_outputs(message: Message, inputs: set[str], report: Report) -> None:
    outputs, taken = {tensor.name for tensor in message.output}, set()
    for index, entry in enumerate(message.batch_output):
        path = ("batch_output", index, "target_name")
        _check_sources(message, "output", index, inputs, report)
        for name in entry.target_name:
            if name not in outputs:
                report.wrong(f"unknown target output name '{name}' for {message.name}", path,
                           hint=_declared("outputs", outputs))  # fmt: skip
            elif name in taken:
                report.wrong(f"target output name '{name}' can only be specified once for {message.name}", path,
                           hint="remove it from one of the two")  # fmt: skip
            taken.add(name)


def _check_sources(message: Message, role: str, index: int, inputs: set[str], report: Report) -> None:
    entry = getattr(message, f"batch_{role}")[index]
    path = (f"batch_{role}", index, "source_input")
    if len(entry.source_input) != SOURCES:
        kind = entry.DESCRIPTOR.fields_by_name["kind"].enum_type.values_by_number[entry.kind].name
        report.wrong(f"batch {role} kind '{kind}' expects 1 source input, got {len(entry.source_input)} for "
                   f"{message.name}", path)  # fmt: skip
    for name in entry.source_input:
        if name not in inputs:
            report.wrong(f"unknown source input name '{name}' for {message.name}", path,
                       hint=_declared("inputs", inputs))  # fmt: skip


def _declared(role: str, names: set[str]) -> str:
    return f"its {role} are {', '.join(sorted(names)) or 'none'}"


def _type_name(entry: Message) -> str:
    return str(entry.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[entry.data_type].name)
