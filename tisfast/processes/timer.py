"""A model's timer (batch delays, queue timeouts) on the event loop.  Layer 4 (processes)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class TimedFace(Protocol):
    """The face of a model's runtime that the timer uses."""

    timer_changed: Callable[[], None] | None

    def next_timer_ns(self) -> int:
        """When on_timer wants to be called, 0 for never."""

    def on_timer(self) -> None:
        """Time has passed."""


class RuntimeTimer:
    """Calls `runtime.on_timer` when it asked for it.

    uvloop counts in whole milliseconds, and batch delays are often shorter: the last part of a millisecond is waited
    for by going round the loop, which serves everybody meanwhile.  So a delay is never late by more than a turn.
    """

    def __init__(self, runtime: TimedFace, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self._runtime = runtime
        self._loop = loop
        self._now_ns = now_ns
        self._handle: asyncio.Handle | None = None
        runtime.timer_changed = self._arm

    def close(self) -> None:
        """Never call again."""
        self._runtime.timer_changed = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        due_ns = self._runtime.next_timer_ns()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if due_ns:
            whole_ms = max(0, due_ns - self._now_ns()) // 1_000_000
            later = self._loop.call_later(whole_ms / 1000, self._look) if whole_ms else self._loop.call_soon(self._look)
            self._handle = later

    def _look(self) -> None:
        self._handle = None
        due_ns = self._runtime.next_timer_ns()
        if due_ns and due_ns <= self._now_ns():
            self._runtime.on_timer()
        if self._handle is None:  # on_timer may have asked for the next one already
            self._arm()
