"""Read the JSON form of a ModelConfig (load overrides, what auto_complete_config returned).  Layer 2 (config).

Takes what protobuf's JSON mapping takes: original or camelCase key names, enums by name or number, 64-bit integers as
numbers or strings, null for "not set"; and of what is no JSON, what its reader takes (lenient_json.py).  Every error is
noted with its key; JSON keeps no lines, so only errors of syntax have a place.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

from tisfast import limits
from tisfast.config import lenient_json, scalars, schema, suggest
from tisfast.config.error_report import Hint, KeyPath, Report, SourcePosition, key_text, owner
from tisfast.config.scalars import BadValue
from tisfast.config.schema import Field


def parse_json(text: str, report: Report) -> schema.Message:
    """The ModelConfig in `text`, as far as it could be read; errors go to the report."""
    message = schema.model_config()
    if len(text) > limits.CONFIG_BYTES_MAX:
        report.add(f"the JSON has {len(text)} characters, more than {limits.CONFIG_BYTES_MAX}")
        report.malformed = True
        return message
    try:
        value = lenient_json.loads(text, _Pairs)
    except json.JSONDecodeError as error:
        report.malformed = True
        report.add(f"not JSON: {error.msg}", place=SourcePosition(error.lineno, error.colno))
        return message
    except RecursionError:
        report.malformed = True
        report.add("the JSON is nested too deep")
        return message
    except ValueError as error:  # an integer of thousands of digits
        report.malformed = True
        report.add(f"not JSON: {error}")
        return message
    fill(message, value, report)
    return message


def fill(message: schema.Message, value: Any, report: Report) -> None:
    """Put a JSON value into the message."""
    _Reader(report).fields(message, value, ())


class _Pairs(dict[str, Any]):
    """A JSON object that remembers which of its keys came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        times = Counter(name for name, _ in pairs) if len(self) < len(pairs) else {}
        self.twice = sorted(name for name, count in times.items() if count > 1)


class _Reader:
    def __init__(self, report: Report) -> None:
        self.report = report

    def refuse(self, message: str, path: KeyPath, hint: Hint = "") -> None:
        where = f" at {key_text(path)}" if len(path) > 1 else ""  # there are no lines to tell equal keys apart
        self.report.broke(path)
        self.report.add(message + where, path, hint=hint)

    def fields(self, message: schema.Message, value: Any, path: KeyPath) -> None:
        if not isinstance(value, dict):
            hint = _object_hint(message.DESCRIPTOR, value)
            self.refuse(f"{owner(path)} takes an object, found {scalars.described(value)}", path, hint)
            return
        for name in getattr(value, "twice", ()):
            self.refuse(f"'{name}' is given twice", (*path, name), "keep one of them")
        chosen: dict[str, str] = {}
        names: dict[str, str] = {}
        for name, entry in value.items():
            field = _field(message.DESCRIPTOR, name)
            if field is None:
                self.unknown(message, name, path)
            elif (first := names.setdefault(field.name, name)) != name:
                self.refuse(f"'{name}' and '{first}' are one key, given twice", (*path, field.name), "keep one of them")
            elif entry is not None and self.only_choice(field, path, chosen):
                self.field(message, field, entry, path)

    def unknown(self, message: schema.Message, name: str, path: KeyPath) -> None:
        root = schema.message_class("ModelConfig").DESCRIPTOR
        hint = partial(suggest.key_hint, name, message.DESCRIPTOR, root)
        self.refuse(f"unknown key '{name}' in {owner(path)}", (*path, name), hint)

    def only_choice(self, field: Field, path: KeyPath, chosen: dict[str, str]) -> bool:
        if field.containing_oneof is None:
            return True
        first = chosen.setdefault(field.containing_oneof.name, field.name)
        if first == field.name:
            return True
        self.refuse(f"'{field.name}' cannot stand beside '{first}'", (*path, field.name), "keep one of them")
        return False

    def field(self, message: schema.Message, field: Field, value: Any, path: KeyPath) -> None:
        path = (*path, field.name)
        if schema.map_entry(field) is not None:
            self.map(message, field, value, path)
        elif not schema.is_repeated(field):
            self.one(message, field, value, path)
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                self.one(message, field, entry, (*path, index))
        else:
            self.refuse(f"'{field.name}' takes a list, found {scalars.described(value)}", path, "write [ ... ]")

    def map(self, message: schema.Message, field: Field, value: Any, path: KeyPath) -> None:
        if not isinstance(value, dict):
            self.refuse(f"'{field.name}' takes an object, found {scalars.described(value)}", path)
            return
        for name in getattr(value, "twice", ()):
            self.refuse(f"'{field.name}' has the key '{name}' twice", (*path, name), "keep one of them")
        fields = field.message_type.fields_by_name
        for name, entry in value.items():
            pair = schema.class_of(field.message_type)()
            self.one(pair, fields["key"], name, (*path, name))
            if not self.report.is_broken((*path, name)):
                self.one(pair, fields["value"], entry, (*path, pair.key))
                schema.put_entry(getattr(message, field.name), field, pair)

    def one(self, message: schema.Message, field: Field, value: Any, path: KeyPath) -> None:
        """One value of a field that is no map: appended to a list, set otherwise."""
        repeated = schema.is_repeated(field)
        target = getattr(message, field.name)
        if field.message_type is not None:
            child = target.add() if repeated else target
            if not repeated:
                child.SetInParent()
            self.fields(child, value, path)
            return
        try:
            scalar = _scalar(field, value)
        except BadValue as error:
            self.refuse(error.message, path, error.hint)
            return
        if repeated:
            target.append(scalar)
        else:
            setattr(message, field.name, scalar)


def _object_hint(descriptor: Any, value: Any) -> str:
    """A text in the place of an object whose only member is a text, as that of a parameter."""
    inner = descriptor.fields
    if isinstance(value, str) and len(inner) == 1 and inner[0].cpp_type == scalars.STRING:
        return f"write {{{json.dumps(inner[0].name)}: {json.dumps(value)}}}"
    return ""


def _field(descriptor: Any, name: str) -> Field | None:
    found: Field | None = descriptor.fields_by_name.get(name)
    return found if found is not None else descriptor.fields_by_camelcase_name.get(name)


def _scalar(field: Field, value: Any) -> Any:
    kind = field.cpp_type
    wrong = BadValue(f"'{field.name}' takes {scalars.wanted(field)}, found {scalars.described(value)}")
    if kind == scalars.ENUM and isinstance(value, str):
        return scalars.enum_of(field, value)
    if kind == scalars.ENUM:
        return scalars.enum_number(field, str(_integer(value, wrong)))
    if kind == scalars.STRING and isinstance(value, str):
        return _text(field, value)
    if kind in scalars.INTEGER_RANGES:
        return scalars.checked_integer(field, _integer(value, wrong))
    if kind == scalars.BOOL and isinstance(value, bool):
        return value
    if kind in (scalars.FLOAT, scalars.DOUBLE):
        return _float(value, wrong)
    raise wrong


def _float(value: Any, wrong: BadValue) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise wrong
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise wrong from None


def _integer(value: Any, wrong: BadValue) -> int:
    """An integer given as number, as a float without fraction, or as decimal text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**64:
        return int(value)
    if isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    raise wrong


def _text(field: Field, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadValue(f"'{field.name}' holds half of a surrogate pair", "write the whole character") from None
    return value
