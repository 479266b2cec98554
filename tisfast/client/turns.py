"""Who may make a call, where only so many may at one time: for both transports of asyncio.  Layer 3 (client)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TypeVar

from tisfast.client.errors import ClientClosed, TimedOut

T = TypeVar("T")


async def wait(future: asyncio.Future[T], deadline: float, late: TimedOut) -> T:
    """The future's value, or `late`.  asyncio.wait_for makes a task for each call, which costs more than the call."""

    def end() -> None:
        if not future.done():
            future.set_exception(late)

    handle = asyncio.get_running_loop().call_later(max(deadline - monotonic(), 0), end)
    try:
        return await future
    finally:
        handle.cancel()


class Turns:
    """Room for `most` calls.  Who leaves hands its room to the one that waits longest, so nobody comes in between.

    late: the error of a call that waited in vain.
    """

    def __init__(self, most: int, late: Callable[[], TimedOut]) -> None:
        self._most = most
        self._room = most  # while a call waits, there is none
        self._late = late
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.closed = False

    def anew(self) -> Turns:
        """Of a next event loop: all the room again, and closed where this one is."""
        turns = Turns(self._most, self._late)
        turns.closed = self.closed
        return turns

    def enter_now(self) -> bool:
        """There is room, and it is the caller's.  Raises ClientClosed."""
        if self.closed:
            raise ClientClosed("the client is closed")
        if self._room <= 0:
            return False
        self._room -= 1
        return True

    async def enter(self, deadline: float) -> None:
        """Wait for room.  Raises `late` and ClientClosed."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await wait(waiter, deadline, self._late())
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.leave()  # its room came with its end
            else:
                with suppress(ValueError):
                    self._waiting.remove(waiter)
            raise

    def leave(self) -> None:
        """The caller's room is another's."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._room += 1

    def close(self) -> None:
        """No further call; those that wait get an error."""
        self.closed = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(ClientClosed("the client is closed"))
