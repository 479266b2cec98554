"""A listener's connections as the app sees them, whatever they speak: swept, and drained.  Layer 4 (front)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Set
from typing import Any, Final, Protocol

from tisfast import limits
from tisfast.front.heap_trim import Heap

SWEEP_SECONDS: Final = 1.0


class ListenerFace(Protocol):
    """The state that the connections of one listener share."""

    on_made: Callable[[], None] | None
    on_empty: Callable[[], None] | None

    @property
    def connections(self) -> Set[Any]:
        """Those that are open."""

    def sweep(self) -> None:
        """Once a second: what has lasted too long ends."""

    def finish_sequences(self, message: str) -> None:
        """Only sequences in progress are served from now on; others are refused with this message."""

    def begin_drain(self) -> None:
        """No new requests, and what is idle goes."""

    def drain(self) -> None:
        """Again and again after that: what has become idle goes."""


class ListenerFront:
    """Sweeps connections once a second while there are any, and drains them.

    held: what the log calls them while they are waited for.
    """

    def __init__(self, shared: ListenerFace, loop: asyncio.AbstractEventLoop, held: str) -> None:
        self.held = held
        self.closed = asyncio.Event()
        self._attended = shared
        self._loop = loop
        self._heap = Heap()
        self._sweeper: asyncio.TimerHandle | None = None
        self._drainer: asyncio.TimerHandle | None = None
        shared.on_made = self._arm

    @property
    def connections(self) -> int:
        """Open client connections."""
        return len(self._attended.connections)

    def finish_sequences(self, message: str) -> None:
        """Serve sequences in progress and nothing else; what else comes is refused with this message."""
        self._attended.finish_sequences(message)

    def begin_drain(self) -> None:
        """No new connections are coming: idle ones go now, others after their last answer, and then `closed` is set."""
        self._attended.on_empty = self._on_empty
        self._attended.begin_drain()
        if self._attended.connections:
            self._drainer = self._loop.call_later(limits.CONNECTIONS_LOOK_SECONDS, self._drain)
        else:
            self._on_empty()

    def _arm(self) -> None:
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        try:
            self._attended.sweep()
        finally:
            looked = self._heap.look()
            if self._attended.connections or not looked:  # once more when the last one has gone
                self._arm()

    def _drain(self) -> None:
        self._drainer = self._loop.call_later(limits.CONNECTIONS_LOOK_SECONDS, self._drain)
        self._attended.drain()

    def _on_empty(self) -> None:
        for timer in (self._sweeper, self._drainer):
            if timer is not None:
                timer.cancel()
        self._sweeper = self._drainer = None
        self.closed.set()
