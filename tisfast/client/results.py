"""What a model's answer is for its caller.  Layer 3 (client)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tisfast.client.arrays import Array, array_of
from tisfast.errors import NotFound

if TYPE_CHECKING:
    from tisfast.wire.client_response import InferResponse


class Result(tuple[Array, ...]):
    """The outputs of one answer, in the server's order: `result["SUM"]`, `result.SUM`, `result[0]`, `a, b = result`.

    names: of the outputs; model, version, id, parameters: what the answer says of itself; final: of a stream, whether
    this is the last answer.  A name that is also a name of this class is reached by `result["count"]`.
    """

    names: tuple[str, ...]
    model: str
    version: str
    id: str
    parameters: dict[str, object]
    final: bool

    def __getitem__(self, key: Any) -> Any:
        """An output by name or position."""
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self.names.index(key))
            except ValueError:
                raise self._missing(key) from None
        return tuple.__getitem__(self, key)

    def __getattr__(self, name: str) -> Array:
        """An output by name."""
        names = self.__dict__.get("names", ())
        if name in names:
            return cast(Array, tuple.__getitem__(self, names.index(name)))
        raise AttributeError(f"the answer has no output '{name}', it has {', '.join(names)}")

    def _missing(self, name: str) -> KeyError:
        return _NoOutput(f"the answer of model '{self.model}' has no output '{name}', it has {', '.join(self.names)}")

    def keys(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    def items(self) -> Iterator[tuple[str, Array]]:
        """Name and array of each output."""
        return zip(self.names, self, strict=True)

    def asdict(self) -> dict[str, Array]:
        """The arrays by name."""
        return dict(self.items())

    def mapped(self, change: Callable[[Array], Array]) -> Result:
        """The same answer with changed arrays."""
        changed = Result([change(array) for array in self])
        changed.__dict__.update(self.__dict__)
        return changed

    def __repr__(self) -> str:
        """Names, types and shapes; the numbers may be many."""
        outputs = ", ".join(f"{name}={array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"Result({outputs})"


class _NoOutput(NotFound, KeyError):
    __str__ = NotFound.__str__


def joined(results: list[Result]) -> Result:
    """The answers to the parts of a batch as one."""
    whole = Result([np.concatenate(arrays) for arrays in zip(*results, strict=True)])
    whole.__dict__.update(results[0].__dict__)
    return whole


def result_of(response: InferResponse, arrays: list[Array] | None = None) -> Result:
    """The result of a response; arrays: of its outputs, where they do not lie in it."""
    outputs = response.outputs
    result = Result([array_of(each) for each in outputs] if arrays is None else arrays)
    result.names = tuple([each.name for each in outputs])
    result.model, result.version, result.id = response.model, response.version, response.id
    result.parameters, result.final = response.parameters, response.final
    return result
