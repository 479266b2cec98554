"""What a terminal shows while a level is measured: one line, written over and over.  Layer 5 (bench).

The load's thread leaves what it has counted here, ten times a second.  Another thread writes, so a terminal that is
stopped holds up no request.  The line is plain text: to render more would hold the interpreter, which the load needs.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO

from tisfast.bench.histogram import Histogram
from tisfast.bench.measure import Progress

SECONDS: Final = 0.25
"""From one line to the next."""
SLICES: Final = 10
"""Rate and percentiles are those of so many slices: the last second."""
ERASE: Final = "\r\x1b[2K"
BOLD, RED, PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


class Live:
    """Draws on `out` until `close`; None: on nothing.  colours: else plain; batch_size: samples of an answer."""

    def __init__(self, out: TextIO | None, *, colours: bool = False, batch_size: int = 1) -> None:
        self._out, self._colours, self._batch_size = out, colours, batch_size
        self._told: deque[Progress] = deque(maxlen=SLICES)
        self._drawn = False
        self._lock = threading.RLock()  # a signal's handler prints, too
        self._ended = threading.Event()
        if out is not None:
            threading.Thread(target=self._draw_on, args=(out,), name="bench-live", daemon=True).start()

    def tell(self, progress: Progress) -> None:
        """Of the last slice.  Called by the load's thread."""
        if self._told and self._told[-1].level != progress.level:
            self._told.clear()
        self._told.append(progress)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Something else is written meanwhile."""
        with self._lock:
            self._erase()
            yield

    def close(self) -> None:
        """Leaves nothing on the terminal."""
        self._ended.set()
        with self.hidden():
            self._told.clear()

    def _draw_on(self, out: TextIO) -> None:
        while not self._ended.wait(SECONDS):
            with self._lock:
                told = list(self._told)
                if told and not self._ended.is_set():
                    self._drawn = True
                    self._write(ERASE + self._fitting(told, _columns(out) - 1))

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._write(ERASE)

    def _write(self, text: str) -> None:
        try:
            if self._out is not None:
                self._out.write(text)
                self._out.flush()
        except (OSError, ValueError):  # the terminal is gone: who measures goes on
            self._ended.set()

    def _fitting(self, told: list[Progress], room: int) -> str:
        """The line, without the parts that have no room on the terminal."""
        shown = []
        for text, style in pieces(told, self._batch_size):
            room -= len(text)
            if room < 0:
                break
            shown.append(f"{style}{text}{PLAIN}" if style and self._colours else text)
        return "".join(shown)


def pieces(told: list[Progress], batch_size: int) -> Iterator[tuple[str, str]]:
    """Texts with their styles."""
    last = told[-1]
    seconds = sum(each.seconds for each in told)
    answers = sum(each.answers for each in told)
    latency = Histogram()
    for each in told:
        latency.merge(each.latency)
    yield f"{last.level.mode.replace('_', ' ')} {last.level.value:g}", BOLD
    if last.left_seconds is not None:
        yield f"  {last.left_seconds:.0f} s left", ""
    yield f"  {answers * batch_size / seconds if seconds else 0:.0f} infer/s", ""
    yield f"  {last.errors} failed", RED if last.errors else ""
    if latency.count:
        shown = " ".join(f"p{each} {latency.quantile(each / 100) // 1000}" for each in (50, 90, 99))
        yield f"  {shown} us", ""


def _columns(out: TextIO) -> int:
    try:
        return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def live_on(out: TextIO, environment: Mapping[str, str], batch_size: int) -> Live:
    """Draws nothing where nobody looks on: no terminal, or one that cannot write over a line."""
    drawn = out.isatty() and environment.get("TERM", "") not in ("", "dumb")
    return Live(out if drawn else None, colours=not environment.get("NO_COLOR"), batch_size=batch_size)
