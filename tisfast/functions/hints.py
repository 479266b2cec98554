"""Type hints of a function as inputs and outputs.  No I/O."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, get_args, get_origin

import numpy as np

from tisfast.errors import BadRequest
from tisfast.functions.tensors import (
    LISTS,
    PYTHON_TYPES,
    TEXT,
    Shape,
    Slot,
    checked_dims,
    datatype_of,
)
from tisfast.types import BY_WIRE

STREAMS: Final = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
LIST_TYPES: Final = (list, collections.abc.Sequence)


def body_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs when an object is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def hints_of(function: Callable[..., Any], title: str) -> Mapping[str, Any]:
    """The resolved hints.  Raises BadRequest where one names what is not there."""
    target: Any = body_of(function)
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise BadRequest(
            f"{title}: a type hint cannot be read: {error}; what hints name has to be at the top of their module"
        ) from None
    except TypeError:  # what is written in C has none
        return {}


def slot_of_hint(hint: Any, name: str, where: str, *, batched: bool) -> Slot | None:
    """The slot that a hint describes, None where it says too little.  Raises BadRequest."""
    dims: tuple[int, ...] | None = None
    hint = _without_none(hint)
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        shapes = [each for each in more if isinstance(each, tuple)]
        dims = checked_dims(where, shapes[0]) if shapes else None
    hint = _without_none(hint)
    if hint in PYTHON_TYPES or (isinstance(hint, type) and issubclass(hint, np.generic)):
        return _scalar(hint, name, where, batched)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in LIST_TYPES and arguments and arguments[0] in PYTHON_TYPES:
        wire, kind = PYTHON_TYPES[arguments[0]]
        return Slot(name, BY_WIRE[wire], (1,) if batched else (-1,), LISTS[kind])
    if origin is not np.ndarray:
        return None
    scalar = get_args(arguments[1])[0] if len(arguments) > 1 and get_args(arguments[1]) else None
    if not isinstance(scalar, type) or not issubclass(scalar, np.generic):
        return None
    datatype, kind = datatype_of(scalar, where)
    rank = _rank(arguments[0])
    return Slot(name, datatype, dims if dims is not None else (-1,) * (rank or 1), kind)


def answer_hint(hint: Any) -> tuple[Any, bool]:
    """(what one answer is, whether there are any number of them)."""
    hint = _named(hint)
    origin = get_origin(hint)
    if origin in STREAMS and get_args(hint):
        return get_args(hint)[0], True
    if origin in (collections.abc.Awaitable, collections.abc.Coroutine):
        return get_args(hint)[-1], False
    return hint, False


def parts_of(hint: Any) -> dict[str, Any]:
    """The hints of the outputs by their names: of a named tuple, a typed dictionary, a tuple, or one alone."""
    hint = _named(hint)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return typing.get_type_hints(hint, include_extras=True)
    if typing.is_typeddict(hint):
        return typing.get_type_hints(hint, include_extras=True)
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        return {f"output_{at}": each for at, each in enumerate(get_args(hint))}
    return {"output": hint}


def _named(hint: Any) -> Any:
    """What an alias made by `type` stands for; from numpy 2.5 on NDArray is one."""
    while hasattr(alias := get_origin(hint) or hint, "__value__") and hasattr(alias, "__type_params__"):
        given = dict(zip(alias.__type_params__, get_args(hint), strict=False))
        hint = alias.__value__
        if given:
            hint = hint[tuple(given[each] for each in hint.__parameters__)]
    return hint


def _without_none(hint: Any) -> Any:
    hint = _named(hint)
    if get_origin(hint) in (typing.Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not type(None)]
        return _named(rest[0]) if len(rest) == 1 else hint
    return hint


def _scalar(hint: Any, name: str, where: str, batched: bool) -> Slot:
    if batched:
        raise BadRequest(
            f"{where} is one {hint.__name__}, and a function that is served with batch= is handed arrays, with the "
            f"rows of several requests: write list[{hint.__name__}] or NDArray there, or leave batch= out"
        )
    if hint in PYTHON_TYPES:
        wire, kind = PYTHON_TYPES[hint]
        return Slot(name, BY_WIRE[wire], (1,), kind)
    datatype, _ = datatype_of(hint, where)
    return Slot(name, datatype, (1,), "text" if datatype is TEXT else "numpy_item")


def _rank(shape: Any) -> int:
    """Dimensions of numpy's shape hint; 0 where it tells none."""
    if get_origin(shape) is not tuple or Ellipsis in get_args(shape):
        return 0
    return len(get_args(shape))


__all__ = ["Shape", "answer_hint", "body_of", "hints_of", "parts_of", "slot_of_hint"]
