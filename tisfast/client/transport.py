"""What carries calls: four of them, of one face.  Layer 3 (client).

The blocking ones have the same coroutines, which never suspend: `run` runs them.  So everything above is written once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from tisfast.client.calls import Call, T
from tisfast.client.errors import Cancelled

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class Cancel:
    """Lets another thread end a call that waits."""

    def __init__(self) -> None:
        self.asked = False
        self._abort: Callable[[], None] | None = None
        # The connection of an ended call is another call's already.  A signal's handler may cancel within `cancel`.
        self._lock = threading.RLock()

    def begin(self, abort: Callable[[], None]) -> None:
        """The call is to be ended by this.  Raises Cancelled when that was asked for already."""
        with self._lock:
            self._abort = abort
        if self.asked:
            raise cancelled()

    def end(self) -> None:
        """It is over."""
        with self._lock:
            self._abort = None

    def cancel(self) -> None:
        """End the call; before it began, it does not begin."""
        with self._lock:
            self.asked = True
            abort, self._abort = self._abort, None
            if abort is not None:  # else it has not begun, or who holds the lock is in it
                abort()


def cancelled() -> Cancelled:
    """The error of a call that its caller took back."""
    return Cancelled("the call was cancelled by its caller")


class Stream(Protocol[T_co]):
    """The answers of one streaming call."""

    async def next(self, deadline: float) -> T_co | None:
        """The next one, None: the server has ended the call.  Raises TisError."""

    def cancel(self) -> None:
        """No further answer is wanted; the server is told."""


class Transport(Protocol):
    """deadline: of time.monotonic."""

    async def ask(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> T:
        """Make the call once.  Raises TisError."""

    async def stream(self, call: Call[T], deadline: float, cancel: Cancel | None = None) -> Stream[T]:
        """Begin a call with any number of answers."""

    async def pause(self, seconds: float, cancel: Cancel | None) -> None:
        """Between two attempts.  Raises Cancelled."""

    async def close(self) -> None:
        """End all calls and connections."""

    def forget(self) -> None:
        """In a forked child: what is open is the parent's."""


def sleep(seconds: float, cancel: Cancel | None) -> None:
    """A pause of a thread, which `cancel` ends.  Raises Cancelled."""
    if cancel is None:
        time.sleep(seconds)
        return
    gate = threading.Lock()  # a bare one: a signal's handler may cancel within this wait, and an Event has a lock
    gate.acquire()
    try:
        cancel.begin(gate.release)
        if gate.acquire(timeout=seconds):
            raise cancelled()
    finally:
        cancel.end()


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """The value of a coroutine over a blocking transport, which suspends nowhere."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    coroutine.close()
    raise AssertionError("a blocking call was suspended")
