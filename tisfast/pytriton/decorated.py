"""Decorators that work on functions, methods and callable objects alike, and among decorators of wrapt.

A decorated callable passes attributes through to what it wraps, both ways, so that a context which is set on the
outermost of a stack is found by all of them, and `str()` of each is that of the innermost function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

from tisfast.pytriton.exceptions import PyTritonBadParameterError

Wrapper: TypeAlias = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""(wrapped, instance, args, kwargs): as wrapt's.  instance: of a bound method, else None."""


class Decorated:
    """What a decorator makes of a callable."""

    def __init__(self, wrapped: Any, wrapper: Wrapper) -> None:
        """wrapper: called in place of `wrapped`."""
        own = {"__wrapped__": wrapped, "_tisfast_wrapper": wrapper}
        # A class has these two itself, so that nothing would look for them in what is wrapped.
        own |= {name: getattr(wrapped, name, None) for name in ("__module__", "__doc__")}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapper."""
        wrapped = self.__wrapped__
        instance = getattr(wrapped, "__self__", None)
        if isinstance(instance, ModuleType):  # of a function that is written in C
            instance = None
        return self._tisfast_wrapper(wrapped, instance, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Decorated:
        """Bind what is wrapped, as a function in a class is bound."""
        bind = getattr(self.__wrapped__, "__get__", None)
        return self if bind is None else Decorated(bind(instance, owner), self._tisfast_wrapper)

    def __getattr__(self, name: str) -> Any:
        """Of what is wrapped."""
        return getattr(self.__wrapped__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """On what is wrapped."""
        setattr(self.__wrapped__, name, value)

    def __str__(self) -> str:
        """As what is wrapped."""
        return str(self.__wrapped__)

    def __repr__(self) -> str:
        """With what is wrapped."""
        return f"<decorated {self.__wrapped__!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickled by its name, as functions are, and a method with its object."""
        instance = getattr(self.__wrapped__, "__self__", None)
        if instance is None or isinstance(instance, ModuleType):
            return str(self.__wrapped__.__qualname__)
        return getattr, (instance, self.__wrapped__.__name__)


def decorator(wrapper: Wrapper) -> Callable[[Any], Any]:
    """A decorator of `def wrapper(wrapped, instance, args, kwargs)`."""

    @functools.wraps(wrapper)
    def decorate(wrapped: Any = None) -> Decorated:
        if not callable(wrapped) and not hasattr(wrapped, "__get__"):
            outer, inner = wrapper.__qualname__.split(".")[0], "." in wrapper.__qualname__
            raise PyTritonBadParameterError(
                f"@{outer} decorates a callable, not {wrapped!r:.200}"
                + ("" if inner else f": write @{outer} above it, without parentheses, as it has no arguments")
            )
        return Decorated(wrapped, wrapper)

    return decorate
