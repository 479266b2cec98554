"""Connections that are kept for the next call, of the blocking transports.  Layer 3 (client)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

from tisfast.client.errors import TimedOut
from tisfast.errors import Unavailable


class Connection(Protocol):
    """What is kept."""

    def usable(self) -> bool:
        """A call may be made: the server has not closed it meanwhile."""

    def close(self) -> None:
        """No further call."""

    def abort(self) -> None:
        """End what another thread waits for."""


C = TypeVar("C", bound=Connection)


class Pool(Generic[C]):
    """At most so many connections, each used by one thread at a time; who finds none free waits.

    make: a new one, by a deadline (time.monotonic).
    """

    def __init__(self, make: Callable[[float], C], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: deque[C] = deque()
        self._busy: set[C] = set()
        self._changed = threading.Condition()
        self._waiting = 0
        self._made = 0
        self._closed = False

    def take(self, deadline: float) -> C:
        """A connection, to be given back or dropped.

        Raises ConnectFailed, and TimedOut when none came free in time.
        """
        while True:
            try:
                found = self._idle.pop()
            except IndexError:
                again = self._wait(deadline)
                if again is None:
                    found = self._new(deadline)
                    self._busy.add(found)
                    return found
                found = again
            self._busy.add(found)
            if found.usable():
                return found
            self.drop(found)

    def _wait(self, deadline: float) -> C | None:
        """One that came free, or None: a new one may be made."""
        with self._changed:
            self._waiting += 1
            try:
                while True:
                    if self._closed:
                        raise Unavailable("the client is closed")
                    if self._idle:
                        return self._idle.pop()
                    if self._made < self._most:
                        self._made += 1
                        return None
                    left = deadline - monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        raise TimedOut(
                            f"none of the client's {self._most} connections came free in time; "
                            "Client(..., connections=N) sets how many there may be"
                        )
            finally:
                self._waiting -= 1

    def _new(self, deadline: float) -> C:
        try:
            return self._make(deadline)
        except BaseException:
            self._gone()
            raise

    def give(self, connection: C) -> None:
        """It is free."""
        self._busy.discard(connection)
        self._idle.append(connection)
        if self._waiting:
            with self._changed:
                self._changed.notify()
        if self._closed:
            self._empty()

    def drop(self, connection: C) -> None:
        """It is of no further use."""
        self._busy.discard(connection)
        connection.close()
        self._gone()

    def _gone(self) -> None:
        with self._changed:
            self._made -= 1
            self._changed.notify()

    def close(self) -> None:
        """Close those that are idle, and end the calls of the others."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for connection in list(self._busy):
            connection.abort()
        self._empty()

    def _empty(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def forget(self) -> None:
        """In a forked child: its connections are the parent's."""
        idle = [*self._idle, *self._busy]
        self.__init__(self._make, self._most)  # type: ignore[misc] # anew, with locks that no thread holds
        for connection in idle:
            connection.close()
