"""What a terminal shows while a level is measured: one line, written over and over.  Layer 5 (bench).

The load's thread leaves what it has counted here, ten times a second.  Another thread writes, so a terminal that is
stopped holds up no request.  The line is plain text: to render more would hold the interpreter, which the load needs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TextIO

from tisfast.bench.histogram import Histogram
from tisfast.bench.measure import Progress
from tisfast.terminal_line import TerminalLine

SECONDS: Final = 0.25
"""From one line to the next."""
SLICES: Final = 10
"""Rate and percentiles are those of so many slices: the last second."""
BOLD, RED = "\x1b[1m", "\x1b[31m"


class Live:
    """Draws on `out` until `close`; None: on nothing.  colours: else plain; batch_size: samples of an answer."""

    def __init__(self, out: TextIO | None, *, colours: bool = False, batch_size: int = 1) -> None:
        self._line = None if out is None else TerminalLine(out)
        self._colours, self._batch_size = colours, batch_size
        self._told: deque[Progress] = deque(maxlen=SLICES)
        self._lock = threading.RLock()  # a signal's handler prints, too
        self._ended = threading.Event()
        if self._line is not None:
            threading.Thread(target=self._draw_on, args=(self._line,), name="bench-live", daemon=True).start()

    def tell(self, progress: Progress) -> None:
        """Of the last slice.  Called by the load's thread."""
        if self._told and self._told[-1].level != progress.level:
            self._told.clear()
        self._told.append(progress)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Something else is written meanwhile."""
        with self._lock:
            if self._line is not None:
                self._line.erase()
            yield

    def close(self) -> None:
        """Leaves nothing on the terminal."""
        self._ended.set()
        with self.hidden():
            self._told.clear()

    def _draw_on(self, line: TerminalLine) -> None:
        while not (self._ended.wait(SECONDS) or line.gone):
            with self._lock:
                told = list(self._told)
                if told and not self._ended.is_set():
                    found = pieces(told, self._batch_size)
                    line.show(found if self._colours else ((text, "") for text, _ in found))


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


def live_on(out: TextIO, environment: Mapping[str, str], batch_size: int) -> Live:
    """Draws nothing where nobody looks on: no terminal, or one that cannot write over a line."""
    drawn = out.isatty() and environment.get("TERM", "") not in ("", "dumb")
    return Live(out if drawn else None, colours=not environment.get("NO_COLOR"), batch_size=batch_size)
