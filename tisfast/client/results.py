"""What a model's answer is for its caller.  Layer 3 (client)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tisfast.client.arrays import Array, array_of
from tisfast.errors import NotFound

if TYPE_CHECKING:
    from tisfast.wire.client_response import InferResponse


class Result(tuple[Array, ...]):
    """The outputs of one answer, in the server's order: `result["SUM"]`, `result.SUM`, `result[0]`, `a, b = result`.

    names: of the outputs; model, version, id, parameters: what the answer says of itself; final: of a stream, whether
    this is the last answer.  An output that has the name of one of these, or of a method, wins: `result.count` is the
    output of that name where there is one, and what the name is else cannot be reached then.
    """

    names: tuple[str, ...]
    model: str
    version: str
    id: str
    parameters: dict[str, object]
    final: bool
    _names: tuple[str, ...]

    def __getitem__(self, key: Any) -> Any:
        """An output by name or position."""
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._names.index(key))
            except ValueError:
                raise self._missing(key) from None
        return tuple.__getitem__(self, key)

    def __getattr__(self, name: str) -> Array:
        """An output by name."""
        names = self.__dict__.get("_names", ())
        if name in names:
            return cast(Array, tuple.__getitem__(self, names.index(name)))
        raise AttributeError(f"the answer has no output '{name}', it has {', '.join(names)}")

    def _missing(self, name: str) -> KeyError:
        whose = f" of model '{self.model}'" if isinstance(self.model, str) else ""  # else it is an output
        return _NoOutput(f"the answer{whose} has no output '{name}', it has {', '.join(self._names)}")

    def keys(self) -> tuple[str, ...]:
        """The names."""
        return self._names

    def items(self) -> Iterator[tuple[str, Array]]:
        """Name and array of each output."""
        return zip(self._names, self, strict=True)

    def asdict(self) -> dict[str, Array]:
        """The arrays by name."""
        return dict(zip(self._names, self, strict=True))

    def mapped(self, change: Callable[[Array], Array]) -> Result:
        """The same answer with changed arrays."""
        return _as(self, [change(array) for array in self])

    def __repr__(self) -> str:
        """Names, types and shapes; the numbers may be many."""
        pairs = zip(self._names, self, strict=True)
        return f"Result({', '.join(f'{name}={array.dtype}{list(array.shape)}' for name, array in pairs)})"


OWN_NAMES: Final = frozenset(name for name in (*dir(Result), *Result.__annotations__) if not name.startswith("_"))
"""Attributes that a Result has whatever its outputs are called."""


class _NoOutput(NotFound, KeyError):
    __str__ = NotFound.__str__


def joined(results: list[Result]) -> Result:
    """The answers to the parts of a batch as one."""
    return _as(results[0], [np.concatenate(arrays) for arrays in zip(*results, strict=True)])


def _as(other: Result, arrays: list[Array]) -> Result:
    """With all that the other one has but its arrays."""
    result = Result(arrays)
    result.__dict__.update(other.__dict__)
    return _with_outputs(result)


def _with_outputs(result: Result) -> Result:
    """Outputs win over what a Result has of the same name."""
    for name in OWN_NAMES.intersection(result._names):
        result.__dict__[name] = result[name]
    return result


def result_with(  # noqa: PLR0913, PLR0917 - what an answer says
    arrays: list[Array],
    names: tuple[str, ...],
    model: str,
    version: str,
    id: str,
    parameters: dict[str, object],
    final: bool,
) -> Result:
    """The result of these outputs, in order."""
    result = Result(arrays)
    result._names = result.names = names
    result.model, result.version, result.id = model, version, id
    result.parameters, result.final = parameters, final
    return result if OWN_NAMES.isdisjoint(names) else _with_outputs(result)


def result_of(response: InferResponse, arrays: list[Array] | None = None) -> Result:
    """The result of a response; arrays: of its outputs, where they do not lie in it."""
    outputs = response.outputs
    return result_with(
        [array_of(each) for each in outputs] if arrays is None else arrays,
        tuple([each.name for each in outputs]),
        response.model,
        response.version,
        response.id,
        response.parameters,
        response.final,
    )
