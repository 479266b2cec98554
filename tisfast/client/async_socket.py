"""Connections of asyncio, and those that are kept for the next call.  Layer 3 (client)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tisfast import limits
from tisfast.client.errors import ClientClosed, ConnectFailed, ConnectionLost, TimedOut
from tisfast.client.turns import Turns
from tisfast.client.wire_socket import connect_failed
from tisfast.errors import BadRequest

if TYPE_CHECKING:
    from ssl import SSLContext

    from tisfast.client.address import Address

P = TypeVar("P", bound=asyncio.BaseProtocol)


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
            raise TimedOut("there was no time left to connect")
        loop = asyncio.get_running_loop()
        task = loop.create_task(
            loop.create_connection(
                make, self.address.host, self.address.port, ssl=self._context, server_hostname=self._server_name
            )
        )
        try:
            # Not wait_for: before Python 3.12 it swallows a cancel that comes as the connection is made.
            await asyncio.wait([task], timeout=left)
        except BaseException:
            _end(task)
            raise
        if not task.done():
            _end(task)
            raise connect_failed(self.address, TimeoutError())
        try:
            _, protocol = task.result()
        except OSError as error:
            raise connect_failed(self.address, error) from None
        return protocol

    def late(self) -> TimedOut:
        """The error of an answer that does not come."""
        return TimedOut("no answer came in time")

    def closed_at_once(self) -> ConnectFailed:
        """The error of a new connection that ended before anything was sent: a proxy without its server does so."""
        return ConnectFailed(f"cannot connect to {self.address}: it closes connections at once; is a server behind it?")

    def lost(self, why: str) -> ConnectionLost:
        """The error of a connection that ended behind the request."""
        return ConnectionLost(
            f"the connection to {self.address} was lost behind the request ({why}); the model may have executed it"
        )


def _end(task: asyncio.Task[tuple[asyncio.Transport, P]]) -> None:
    """Nobody wants the connection any more, even if it is made all the same."""

    def made(task: asyncio.Task[tuple[asyncio.Transport, P]]) -> None:
        if not task.cancelled() and task.exception() is None:
            transport, _ = task.result()
            transport.abort()

    task.cancel()
    task.add_done_callback(made)


class OneLoop:
    """The event loop that a transport's connections belong to.  forget: them, when it is closed."""

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """The loop that runs is that one, or the first behind it.  Raises BadRequest."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._loop is not None:
            if not self._loop.is_closed():
                raise BadRequest("this AsyncClient is another event loop's; make one for each loop")
            self._forget()
        self._loop = loop

    def forget(self) -> None:
        """In a forked child: the loop is the parent's."""
        self._loop = None


class AsyncPool(Generic[C]):
    """At most so many connections, each used by one call at a time; a call that finds none free waits its turn."""

    def __init__(self, make: Callable[[float], Awaitable[C]], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: deque[C] = deque()
        self._busy: set[C] = set()
        self._turns = Turns(most, self._late)

    def forget(self) -> None:
        """Connections are those of a closed loop, or of a forked child's parent.  What is closed stays so."""
        self._idle, self._busy, self._turns = deque(), set(), self._turns.anew()

    def _late(self) -> TimedOut:
        return TimedOut(
            f"none of the client's {self._most} connections came free in time; "
            "AsyncClient(..., connections=N) sets how many there may be"
        )

    async def take(self, deadline: float) -> C:
        """A connection, to be given back or dropped.

        Raises ConnectFailed, and TimedOut when none came free in time.
        """
        if not self._turns.enter_now():
            await self._turns.enter(deadline)
        try:
            found = self._usable() or await self._made(deadline)
        except BaseException:
            self._turns.leave()
            raise
        self._busy.add(found)
        return found

    def _usable(self) -> C | None:
        while self._idle:
            found = self._idle.pop()
            usable = False
            try:
                usable = found.usable()
            finally:  # Ctrl-C may come in between
                if not usable:
                    found.close()
            if usable:
                return found
        return None

    async def _made(self, deadline: float) -> C:
        made = await self._make(deadline)
        if self._turns.closed:
            made.close()
            raise ClientClosed("the client is closed")
        return made

    def give(self, connection: C) -> None:
        """It is free."""
        self._busy.discard(connection)
        if self._turns.closed:
            connection.close()
            return
        self._idle.append(connection)
        self._turns.leave()

    def drop(self, connection: C) -> None:
        """It is of no further use."""
        self._busy.discard(connection)
        connection.close()
        self._turns.leave()

    def close(self) -> None:
        """Close all; calls that wait get an error."""
        self._turns.close()
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
