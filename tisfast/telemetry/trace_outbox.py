"""From the event loop to the thread that writes traces: bounded, and the rest is counted.  Layer 4 (telemetry)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tisfast.telemetry.trace import Trace

log = logging.getLogger("tisfast.trace")


class Outbox:
    """A queue of complete traces and the thread that empties it, started with the first one.

    write: called in that thread with at most `portion_max` traces, the oldest first; queued_max: bound of the queue;
    bytes_max: of the bytes of the tensors in it and in what is being written;
    delay_seconds: how long traces may wait for others to go with them.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[Trace]], None],
        *,
        queued_max: int,
        bytes_max: int,
        portion_max: int,
        delay_seconds: float,
    ) -> None:
        self._name = name
        self._write = write
        self._queued_max = queued_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._portion_max = portion_max
        self._delay_seconds = delay_seconds
        self._queue: deque[Trace] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def put(self, trace: Trace) -> None:
        """Queue a trace; never blocks for what the thread does."""
        with self._news:
            full = len(self._queue) >= self._queued_max or self._bytes + trace.nbytes > self._bytes_max
            if self._closing or full:
                self._dropped += 1
                return
            self._queue.append(trace)
            self._bytes += trace.nbytes
            self._start()
            if len(self._queue) == 1 or len(self._queue) == self._portion_max:
                self._news.notify()

    def close(self, seconds: float) -> None:
        """Write what is queued, within `seconds`; what is left then is lost, and told."""
        with self._news:
            self._closing = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                log.warning("%d traces were not written in the %g s that the end may take", len(self._queue), seconds)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while portion := self._take():
            try:
                self._write(portion)
            except Exception:  # our bug: told, and tracing goes on
                log.exception("%d traces could not be written", len(portion))
            with self._news:
                self._bytes -= sum(trace.nbytes for trace in portion)

    def _take(self) -> list[Trace]:
        """The next portion, [] at the end."""
        with self._news:
            self._news.wait_for(lambda: self._queue or self._closing)
            if self._delay_seconds:
                self._news.wait_for(lambda: len(self._queue) >= self._portion_max or self._closing, self._delay_seconds)
            dropped, self._dropped = self._dropped, 0
            portion = [self._queue.popleft() for _ in range(min(len(self._queue), self._portion_max))]
        if dropped:
            log.warning(
                "%d traces were dropped: %d traces, or %d bytes of tensors, were waiting already, as many as may; "
                "raise the trace rate, or write to a faster place",
                dropped,
                self._queued_max,
                self._bytes_max,
            )
        return portion
