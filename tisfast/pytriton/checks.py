"""Whether arguments and the fields of dataclasses are what their annotations say: one sentence where they are not."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tisfast.pytriton.exceptions import PyTritonValidationError

_PLAIN: Final = {bool: "True or False", int: "a whole number", str: "text"}


def check(what: str, value: Any, *kinds: Any, none: bool = False) -> None:
    """A value by its kinds: classes, or list[X], Mapping[X, Y] and the like; dataclasses with their fields.

    none: None will do, too.  Raises PyTritonValidationError.
    """
    if (none and value is None) or Any in kinds:
        return
    kind = next((each for each in kinds if _is_of(value, each)), None)
    if kind is None:
        allowed = " or ".join([*map(_words, kinds), *["None"] * none])
        raise PyTritonValidationError(f"{what} must be {allowed}, not {value!r:.200}")
    parts = typing.get_args(kind)
    if isinstance(value, Mapping) and parts:
        for key, each in value.items():
            check(f"a key of {what}", key, parts[0])
            check(f"{what}[{key!r}]", each, *_kinds(parts[1]))
    elif parts:
        for at, each in enumerate(value):
            check(f"{what}[{at}]", each, *_kinds(parts[0]))
    elif dataclasses.is_dataclass(kind):
        check_fields(what, value)


def check_fields(what: str, made: Any) -> None:
    """The fields of a dataclass.  Raises PyTritonValidationError."""
    for name, hint in typing.get_type_hints(type(made)).items():
        kinds = _kinds(hint)
        check(f"{what}.{name}", getattr(made, name), *kinds, none=type(None) in typing.get_args(hint))


def _kinds(hint: Any) -> list[Any]:
    """Those of a union."""
    if isinstance(hint, types.UnionType):
        return [each for each in typing.get_args(hint) if each is not type(None)]
    return [hint]


def _is_of(value: Any, kind: Any) -> bool:
    kind = typing.get_origin(kind) or kind
    if kind is bool:
        return isinstance(value, bool | int | np.bool_) and value in {0, 1}
    if kind is int:
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    if issubclass(kind, Sequence) and kind is not str:
        return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    return isinstance(value, kind)


def _words(kind: Any) -> str:
    parts = typing.get_args(kind)
    plain = typing.get_origin(kind) or kind
    if plain in _PLAIN:
        return _PLAIN[plain]
    if issubclass(plain, enum.Enum):
        return f"one of {', '.join(map(str, plain))}"
    if issubclass(plain, Mapping):
        return f"a dictionary of {' to '.join(_words(_kinds(each)[0]).removeprefix('a ') for each in parts)}"
    if issubclass(plain, Sequence):
        return f"a list of {_words(_kinds(parts[0])[0]).removeprefix('a ')}s"
    return str(plain.__name__)
