"""Whether the fields of a dataclass have the types that it says: what comes from a file may not.  Layer 5 (analyze)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def check_fields(made: Any) -> None:
    """Raises TypeError with the first field whose value has another type; a number is finite."""
    for name, wanted in get_type_hints(type(made)).items():
        value = getattr(made, name)
        if not _fits(value, wanted):
            raise TypeError(f"{name} cannot be {value!r:.100}")


def _fits(value: Any, wanted: Any) -> bool:
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Mapping:
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in pairs)
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(kinds) == len(value) and all(map(_fits, value, kinds))
    if is_dataclass(value) and type(value) is wanted:
        check_fields(value)
    return _is(value, wanted)


def _is(value: Any, wanted: type) -> bool:
    """As isinstance, but a whole number is a float, and a bool no number."""
    if isinstance(value, bool):
        return wanted is bool
    if wanted is float:
        return isinstance(value, int | float) and _finite(value)
    return isinstance(value, wanted)


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
