"""Requests as callables get them, and their responses."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np


class _Arrays:
    """What requests and responses have in common: a mapping over `data`."""

    data: dict[str, np.ndarray[Any, Any]]

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """One array."""
        return self.data[name]

    def __setitem__(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Add or replace one."""
        self.data[name] = array

    def __delitem__(self, name: str) -> None:
        """Take one out."""
        del self.data[name]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.data)

    def __iter__(self) -> Iterator[str]:
        """Their names."""
        return iter(self.data)

    def items(self) -> ItemsView[str, np.ndarray[Any, Any]]:
        """Names and arrays."""
        return self.data.items()

    def keys(self) -> KeysView[str]:
        """Names."""
        return self.data.keys()

    def values(self) -> ValuesView[np.ndarray[Any, Any]]:
        """Arrays, inputs in the order of the model's configuration."""
        return self.data.values()


@dataclass
class Request(_Arrays):
    """One request: a mapping of input names to arrays.

    parameters: those of the request and the headers that the server forwards, headers as text.  span: of the trace that
    the request belongs to, None where there is none.  requested_output_names: None is all.
    """

    data: dict[str, np.ndarray[Any, Any]]
    parameters: dict[str, str | int | bool] | None = None
    span: Any = None
    requested_output_names: list[str] | None = None

    def traced_span(self, span_name: str, **kwargs: Any) -> AbstractContextManager[Any]:
        """A span within that of the request; does nothing where there is none."""
        from tisfast.pytriton.proxy.telemetry import traced_span  # noqa: PLC0415 - it names this class

        return traced_span(self, span_name, **kwargs)


@dataclass
class Response(_Arrays):
    """One response: a mapping of output names to arrays."""

    data: dict[str, np.ndarray[Any, Any]]


Requests: TypeAlias = list[Request]
Responses: TypeAlias = list[Response]
