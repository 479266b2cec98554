"""Connections that are kept for the next call, of the blocking transports.  Layer 3 (client)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

from tisfast.client.errors import ClientClosed, TimedOut, TisError, client_closed
from tisfast.client.transport import Cancel, cancelled


class Connection(Protocol):
    """What is kept."""

    def usable(self) -> bool:
        """A call may be made: the server has not closed it meanwhile."""

    def close(self) -> None:
        """No further call."""

    def abort(self, why: Callable[[], TisError] = cancelled) -> None:
        """End what another thread waits for, which then raises `why`."""


C = TypeVar("C", bound=Connection)


class Waiter(Generic[C]):
    """One thread that waits.  found: the connection that it was handed; make: it may make one.

    It waits at a bare lock: whoever tells it may be a collection of garbage within its own wait, which an Event's
    lock would not let in.
    """

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self.told = False
        self.found: C | None = None
        self.make = False

    def wait(self, seconds: float) -> None:
        """Until it is told, for so long."""
        self._gate.acquire(timeout=min(max(seconds, 0), threading.TIMEOUT_MAX))

    def tell(self) -> None:
        """Once."""
        self.told = True
        self._gate.release()


class Pool(Generic[C]):
    """At most so many connections, each used by one thread at a time; a thread that finds none free waits its turn.

    make: a new one, by a deadline (time.monotonic).
    """

    def __init__(self, make: Callable[[float], C], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: deque[C] = deque()
        self._busy: set[C] = set()
        # A stream that the garbage collector ends drops its connection in whatever thread the collection runs: it may
        # hold the lock.
        self._lock = threading.RLock()
        self._waiting: deque[Waiter[C]] = deque()
        self._made = 0
        self._closed = False

    def take(self, deadline: float, cancel: Cancel | None = None) -> C:
        """A connection, to be given back or dropped.  cancel: ends the wait.

        Raises ConnectFailed, ClientClosed, Cancelled, and TimedOut when none came free in time.
        """
        while True:
            if self._idle and not self._waiting:  # whoever waits has the next one
                try:
                    found = self._idle.pop()
                except IndexError:  # another thread was faster
                    continue
            else:
                again = self._wait(deadline, cancel)
                if again is None:
                    return self._new(deadline)
                found = again
            self._busy.add(found)
            usable = False
            try:
                if self._closed:  # `close` may have looked before it was among the busy ones
                    raise ClientClosed("the client is closed")
                usable = found.usable()
            finally:  # Ctrl-C may come in between
                if not usable:
                    self.drop(found)
            if usable:
                return found

    def _wait(self, deadline: float, cancel: Cancel | None) -> C | None:
        """One that came free, or None: a new one may be made."""
        waiter: Waiter[C] = Waiter()
        with self._lock:
            if self._closed:
                raise ClientClosed("the client is closed")
            self._waiting.append(waiter)
            self._hand_over()
        try:
            if cancel is not None:
                cancel.begin(lambda: self._wake(waiter))
            waiter.wait(deadline - monotonic())
        except BaseException:  # Ctrl-C, or it was cancelled before
            self._leave(waiter)
            raise
        finally:
            if cancel is not None:
                cancel.end()
        with self._lock:
            if not waiter.told:
                self._waiting.remove(waiter)
                raise TimedOut(
                    f"none of the client's {self._most} connections came free in time; "
                    "Client(..., connections=N) sets how many there may be"
                )
        if waiter.found is None and not waiter.make:
            raise ClientClosed("the client is closed") if self._closed else cancelled()
        return waiter.found

    def _wake(self, waiter: Waiter[C]) -> None:
        """With nothing, where it still waits."""
        with self._lock:
            if not waiter.told:
                self._waiting.remove(waiter)
                waiter.tell()

    def _leave(self, waiter: Waiter[C]) -> None:
        """It waits no longer; what it was handed goes to others."""
        with self._lock:
            if not waiter.told:
                self._waiting.remove(waiter)
            elif waiter.found is not None:
                self._idle.append(waiter.found)
            elif waiter.make:
                self._made -= 1
            self._hand_over()
        if self._closed:
            self._empty()

    def _hand_over(self) -> None:
        """What is free belongs to those that wait longest.  It may be called within itself, see _lock."""
        while self._waiting:
            found = None
            try:
                found = self._idle.pop()
            except IndexError:
                if self._made >= self._most:
                    return
                self._made += 1
            try:
                waiter = self._waiting.popleft()
            except IndexError:  # the inner call told it
                if found is None:
                    self._made -= 1
                else:
                    self._idle.append(found)
                return
            waiter.found, waiter.make = found, found is None
            waiter.tell()

    def _new(self, deadline: float) -> C:
        try:
            made = self._make(deadline)
        except BaseException:
            self._gone()
            raise
        self._busy.add(made)
        if self._closed:
            self.drop(made)
            raise ClientClosed("the client is closed")
        return made

    def give(self, connection: C) -> None:
        """It is free."""
        self._busy.discard(connection)
        self._idle.append(connection)
        if self._waiting:
            with self._lock:
                self._hand_over()
        if self._closed:
            self._empty()

    def drop(self, connection: C) -> None:
        """It is of no further use."""
        connection.close()
        if connection in self._busy:  # else it is of a forked child's parent, whose pool counts it
            self._busy.discard(connection)
            self._gone()

    def _gone(self) -> None:
        with self._lock:
            self._made -= 1
            self._hand_over()

    def close(self) -> None:
        """Close those that are idle, and end the calls of the others."""
        with self._lock:
            self._closed = True
            while self._waiting:
                self._waiting.popleft().tell()
        for connection in list(self._busy):
            connection.abort(client_closed)
        self._empty()

    def _empty(self) -> None:
        while True:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def forget(self) -> None:
        """In a forked child: its connections are the parent's.  What is closed stays so."""
        idle, closed = [*self._idle, *self._busy], self._closed
        self.__init__(self._make, self._most)  # type: ignore[misc] # anew, with locks that no thread holds
        self._closed = closed
        for connection in idle:
            connection.close()
