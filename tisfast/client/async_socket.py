"""Connections of asyncio, and those that are kept for the next call.  Layer 3 (client)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tisfast import limits
from tisfast.client.errors import ConnectionLost, TimedOut
from tisfast.client.wire_socket import connect_failed
from tisfast.errors import Unavailable

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address

P = TypeVar("P", bound=asyncio.BaseProtocol)
T = TypeVar("T")


class AsyncConnection(Protocol):
    """What a pool keeps."""

    def usable(self) -> bool:
        """Another call may be made."""

    def close(self) -> None:
        """No further call."""


C = TypeVar("C", bound=AsyncConnection)


class Where:
    """A server's address, and how connections to it are encrypted."""

    def __init__(self, address: Address, context: SSLContext | None, server_name: str) -> None:
        self.address = address
        self._context = context
        self._server_name = (server_name or address.host) if context is not None else None

    async def connect(self, make: Callable[[], P], deadline: float) -> P:
        """A connection.  Raises ConnectFailed; nothing was sent then."""
        left = min(deadline - monotonic(), limits.CLIENT_CONNECT_SECONDS_MAX)
        if left <= 0:
            raise TimedOut(f"there was no time left to connect to {self.address}")
        loop = asyncio.get_running_loop()
        coroutine = loop.create_connection(
            make, self.address.host, self.address.port, ssl=self._context, server_hostname=self._server_name
        )
        try:
            _, protocol = await asyncio.wait_for(coroutine, left)
        except asyncio.TimeoutError:
            raise connect_failed(self.address, TimeoutError()) from None
        except OSError as error:
            raise connect_failed(self.address, error) from None
        return protocol

    def late(self) -> TimedOut:
        """The error of an answer that does not come."""
        return TimedOut(f"no answer came from {self.address} within the time that the call may take (timeout=)")

    def lost(self, why: str) -> ConnectionLost:
        """The error of a connection that ended behind the request."""
        return ConnectionLost(
            f"the connection to {self.address} was lost behind the request ({why}); the model may have executed it"
        )


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


class AsyncPool(Generic[C]):
    """At most so many connections, each used by one call at a time; who finds none free waits, in order."""

    def __init__(self, make: Callable[[float], Awaitable[C]], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: deque[C] = deque()
        self._busy: set[C] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._made = 0
        self._closed = False

    async def take(self, deadline: float) -> C:
        """A connection, to be given back or dropped.

        Raises ConnectFailed, and TimedOut when none came free in time.
        """
        while True:
            if self._closed:
                raise Unavailable("the client is closed")
            if self._idle:
                found = self._idle.pop()
                if found.usable():
                    break
                self._made -= 1
                found.close()
                continue
            if self._made < self._most:
                found = await self._new(deadline)
                break
            await self._turn(deadline)
        self._busy.add(found)
        return found

    async def _new(self, deadline: float) -> C:
        self._made += 1
        try:
            return await self._make(deadline)
        except BaseException:
            self._made -= 1
            self._next()
            raise

    async def _turn(self, deadline: float) -> None:
        """Until one may have come free."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await wait(
                waiter,
                deadline,
                TimedOut(
                    f"none of the client's {self._most} connections came free in time; "
                    "AsyncClient(..., connections=N) sets how many there may be"
                ),
            )
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._next()  # it was this one's turn
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiter)

    def _next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def give(self, connection: C) -> None:
        """It is free."""
        self._busy.discard(connection)
        if self._closed:
            connection.close()
            return
        self._idle.append(connection)
        self._next()

    def drop(self, connection: C) -> None:
        """It is of no further use."""
        self._busy.discard(connection)
        connection.close()
        self._made -= 1
        self._next()

    def close(self) -> None:
        """Close all; calls that wait get an error."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        while self._waiting:
            self._next()

    def forget(self) -> None:
        """In a forked child: connections are the parent's, and so is its loop."""
        self._idle.clear()
        self._busy.clear()
        self._waiting.clear()
        self._made = 0
