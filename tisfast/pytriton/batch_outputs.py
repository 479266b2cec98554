"""What a callable returns, whatever its form, and batches cut apart."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from typing import Any

Answer = Callable[[Any], Any]
Ended = Callable[[BaseException | None], None]


def split(outputs: Mapping[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The outputs of each request, of those of a batch.  sizes: rows of each.  Raises ValueError for other rows."""
    total = sum(sizes)
    odd = [f"{name}: {array.shape}" for name, array in outputs.items() if not array.ndim or array.shape[0] != total]
    if odd:
        raise ValueError(
            f"Received output tensors with different batch sizes: {', '.join(odd)}. Expected batch size: {total}. "
        )
    answers, start = [], 0
    for size in sizes:
        answers.append({name: array[start : start + size] for name, array in outputs.items()})
        start += size
    return answers


def follow(call: Callable[[], Any], answer: Answer, ended: Ended = lambda error: None) -> Any:
    """What `call` returns with `answer` made of it: of each item of a generator, of what a coroutine returns.

    ended: told when it is over, with the error if there was one.
    """
    try:
        result = call()
        if inspect.isgenerator(result):
            return _items(result, answer, ended)
        if inspect.isasyncgen(result):
            return _later_items(result, answer, ended)
        if inspect.isawaitable(result):
            return Later(_later(result, answer, ended), functools.partial(_unbegun, result, ended))
        made = answer(result)
    except BaseException as error:
        ended(error)
        raise
    ended(None)
    return made


def _items(items: Iterator[Any], answer: Answer, ended: Ended) -> Iterator[Any]:
    error: BaseException | None = None
    try:
        for item in items:
            yield answer(item)
    except BaseException as raised:
        error = raised
        raise
    finally:
        ended(error)


async def _later_items(items: AsyncIterator[Any], answer: Answer, ended: Ended) -> AsyncIterator[Any]:
    error: BaseException | None = None
    try:
        async for item in items:
            yield answer(item)
    except BaseException as raised:
        error = raised
        raise
    finally:
        ended(error)


class Later(Coroutine[Any, Any, Any]):
    """A coroutine that may end before anybody has begun it, as a task that is cancelled at once.

    unbegun: called then, for what the coroutine's own `finally` cannot do.
    """

    def __init__(self, outer: Coroutine[Any, Any, Any], unbegun: Callable[[], None]) -> None:
        self._outer, self._unbegun = outer, unbegun

    def __await__(self) -> Generator[Any, Any, Any]:
        """See Coroutine."""
        return self._outer.__await__()

    def send(self, value: Any) -> Any:
        """See Coroutine."""
        return self._outer.send(value)

    def throw(self, *raised: Any) -> Any:
        """See Coroutine."""
        self._end_unbegun()
        return self._outer.throw(*raised)

    def close(self) -> None:
        """See Coroutine."""
        self._end_unbegun()
        self._outer.close()

    def _end_unbegun(self) -> None:
        if inspect.getcoroutinestate(self._outer) == inspect.CORO_CREATED:
            self._unbegun()


def _unbegun(result: Awaitable[Any], ended: Ended) -> None:
    ended(None)
    if isinstance(result, Coroutine):
        result.close()


async def _later(result: Awaitable[Any], answer: Answer, ended: Ended) -> Any:
    error: BaseException | None = None
    try:
        return answer(await result)
    except BaseException as raised:
        error = raised
        raise
    finally:
        ended(error)
