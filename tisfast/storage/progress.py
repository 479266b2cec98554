"""How far downloads are: a bar on a terminal, a line of the log now and then elsewhere.  Layer 3 (storage)."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

from tisfast import limits
from tisfast.terminal_line import TerminalLine, bar, clock

log = logging.getLogger("tisfast.storage")
UNITS = ("bytes", "KB", "MB", "GB", "TB")


def spelled(nbytes: float) -> str:
    """A size for people."""
    for unit in UNITS:
        if nbytes < 1000 or unit == UNITS[-1]:
            return f"{nbytes:.0f} {unit}" if unit == UNITS[0] else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    raise AssertionError("the last unit has no upper end")


class DownloadProgress:
    """The progress of one or more syncs at a time.  `advance` may be called from any thread, all else by the event
    loop's.
    """

    def __init__(self, *, terminal: bool | None = None) -> None:
        """terminal: None asks stdout."""
        self._terminal = sys.stdout.isatty() if terminal is None else terminal
        self._lock = threading.Lock()
        self._total = 0
        self._done = 0
        self._syncs = 0
        self._timer: asyncio.TimerHandle | None = None
        self._line: TerminalLine | None = None
        self._began = 0.0

    def begin(self) -> None:
        """A sync has begun."""
        self._syncs += 1
        if self._timer is None:
            self._began = time.monotonic()
            self._wait()

    def expect(self, nbytes: int) -> None:
        """So many bytes more are to come."""
        self._total += nbytes

    def advance(self, nbytes: int) -> None:
        """So many are there; negative when some must come again."""
        with self._lock:
            self._done += nbytes

    def end(self) -> None:
        """A sync has ended; with the last one the bar goes."""
        self._syncs -= 1
        if self._syncs:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line is not None:
            self._line.erase()
            self._line = None
        self._total = self._done = 0

    def _wait(self) -> None:
        seconds = limits.STORAGE_BAR_SECONDS if self._terminal else limits.STORAGE_LOG_SECONDS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._show)

    def _show(self) -> None:
        if self._total and self._terminal:
            self._draw()
        elif self._total:
            log.info("downloaded %s of %s", spelled(self._done), spelled(self._total))
        self._wait()

    def _draw(self) -> None:
        if self._line is None:
            self._line = TerminalLine(sys.stdout)
        seconds = time.monotonic() - self._began
        how_far = f"{bar(self._done, self._total)} {spelled(self._done)} of {spelled(self._total)}"
        pieces = [(f"downloading models {how_far}", "")]
        if self._done > 0 and seconds > 0:
            rate = self._done / seconds
            pieces.append((f"  {spelled(rate)}/s", ""))
            pieces.append((f"  {clock(max(self._total - self._done, 0) / rate)} left", ""))
        self._line.show(pieces)
