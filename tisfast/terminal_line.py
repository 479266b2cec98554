"""One line of a terminal, written over and over: how far something is.  Layer 0.

Plain text and two control sequences: a library that draws more is 6 MB, and none of it is needed here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, TextIO

ERASE: Final = "\r\x1b[2K"
PLAIN: Final = "\x1b[0m"
COLUMNS: Final = 80
"""Of a terminal that does not say."""
BAR_CHARACTERS: Final = 24


class TerminalLine:
    """The last line of `out`, which is a terminal.  What cannot be written, as the terminal is gone, is left out."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = False
        self.gone = False

    def show(self, pieces: Iterable[tuple[str, str]]) -> None:
        """Write over what is there: texts with their styles, "" for none; those that have no room are left out."""
        room, shown = self._columns() - 1, []
        for text, style in pieces:
            room -= len(text)
            if room < 0:
                break
            shown.append(f"{style}{text}{PLAIN}" if style else text)
        self._drawn = True
        self._write(ERASE + "".join(shown))

    def erase(self) -> None:
        """Leave nothing of it."""
        if self._drawn:
            self._drawn = False
            self._write(ERASE)

    def _write(self, text: str) -> None:
        if self.gone:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):
            self.gone = True

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._out.fileno()).columns or COLUMNS
        except (OSError, ValueError):
            return COLUMNS


def bar(done: float, total: float) -> str:
    """How much of it is done, as a picture."""
    filled = int(BAR_CHARACTERS * min(max(done / total, 0.0), 1.0)) if total > 0 else 0
    return f"[{'#' * filled}{'.' * (BAR_CHARACTERS - filled)}]"


def clock(seconds: float) -> str:
    """A time for people: minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
