"""Turn one written value (a token, or a value of JSON) into what a protobuf field takes.  Layer 2 (config)."""

from __future__ import annotations

import re
from typing import Any, Final

from tisfast.config.error_report import Hint
from tisfast.config.schema import Field
from tisfast.config.suggest import near_enum

# FieldDescriptor.CPPTYPE_*: numbers of protobuf's public interface, stated here so that nothing is imported for them.
INT32, INT64, UINT32, UINT64, DOUBLE, FLOAT, BOOL, ENUM, STRING, MESSAGE = range(1, 11)
INTEGER_RANGES: Final = {
    INT32: ("int32", -(2**31), 2**31 - 1),
    INT64: ("int64", -(2**63), 2**63 - 1),
    UINT32: ("uint32", 0, 2**32 - 1),
    UINT64: ("uint64", 0, 2**64 - 1),
}
ENUM_DIGITS_MAX: Final = 11
"""Of an int32 and its sign."""
BOOLS: Final = {
    "true": True, "True": True, "t": True, "1": True,
    "false": False, "False": False, "f": False, "0": False,
}  # fmt: skip
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SIMPLE: Final = {
    b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip


class BadValue(Exception):
    """A value that the field cannot take; message and hint go into the report."""

    def __init__(self, message: str, hint: Hint = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def wanted(field: Field) -> str:
    """The values that a field takes, in words: "an int32", "a string in quotes", "one of KIND_AUTO, ..."."""
    kind = field.cpp_type
    if kind == ENUM:
        return f"one of {', '.join(value.name for value in field.enum_type.values)}"
    if kind in INTEGER_RANGES:
        name = INTEGER_RANGES[kind][0]
        return f"an {name}" if name.startswith("i") else f"a {name}"
    return {BOOL: "true or false", STRING: "a string in quotes", MESSAGE: "{ ... }"}.get(kind, "a number")


def checked_integer(field: Field, value: int) -> int:
    """The value, if the field's integer type holds it."""
    name, low, high = INTEGER_RANGES[field.cpp_type]
    if not low <= value <= high:
        raise BadValue(f"'{field.name}' is {value}, outside {name}", f"give a number from {low} to {high}")
    return value


def integer_of(text: str) -> int:
    """A decimal, hexadecimal (0x) or octal (0) integer literal.  Raises ValueError for anything else."""
    if re.fullmatch("0[0-9]+", text):
        return int(text, 8)
    return int(text, 16 if text[:2] in ("0x", "0X") else 10)


def float_of(text: str) -> float:
    """A decimal literal, with protobuf's optional trailing f.  Raises ValueError for anything else.

    Hexadecimal and octal ones (0x1, 01, 01.5) protobuf takes for integer fields only.
    """
    if text.lower() in ("inf", "infinity", "nan"):
        return float(text)
    if re.match("0[0-9xX]", text):
        raise ValueError(f"{text} is no decimal number")
    return float(text.rstrip("fF"))


def enum_of(field: Field, name: str) -> int:
    """The number of an enum value given by name."""
    values = field.enum_type.values_by_name
    if name in values:
        return int(values[name].number)

    def hint() -> str:
        guess = near_enum(name, values)
        return f"did you mean '{guess}'?" if guess else f"possible: {', '.join(values)}"

    raise BadValue(f"unknown value '{name:.60}' for '{field.name}'", hint)


def enum_number(field: Field, written: str) -> int:
    """An enum value given by the decimal digits of its number."""
    number = int(written) if len(written) <= ENUM_DIGITS_MAX else -1
    if number in field.enum_type.values_by_number:
        return number
    raise BadValue(f"'{field.name}' has no value of number {written:.60}", f"write {wanted(field)}")


def unquoted(literal: str) -> str:
    """The text of one quoted literal.  Raises BadValue for an unknown escape or bytes that are not UTF-8."""
    body = literal[1:-1].encode()
    try:
        return (_ESCAPE.sub(_escaped, body) if b"\\" in body else body).decode()
    except UnicodeDecodeError as error:
        raise BadValue(
            f"the string is not UTF-8: byte 0x{error.object[error.start]:02x}", "write the characters themselves"
        ) from None


def _escaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, simple = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if short or long:
        point = int(short or long, 16)
        if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
            raise BadValue(f"the string holds U+{point:04X}, which is no character")
        return chr(point).encode()
    if simple not in _SIMPLE:
        letter = simple.decode(errors="replace")
        raise BadValue(f"unknown escape '\\{letter}' in a string", "write '\\\\' for a backslash")
    return _SIMPLE[simple]


def described(value: Any) -> str:
    """A JSON value as an error names it."""
    if isinstance(value, str):
        return f"string {value!r}"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
