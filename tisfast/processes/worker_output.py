"""Output of workers: lines from a pipe to the log, bounded in length and in pace.  Layer 4 (processes)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable

from tisfast import limits, tuning

WRITTEN_LEVEL = re.compile(  # as logging, glog and the interpreter begin a line
    r"(?P<glog>[IWEF])\d{4} |(?P<traceback>Traceback \(most recent)|"
    r".{0,80}?\b(?P<word>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b"
)
WRITTEN_LEVELS = {
    **{"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL},
    **{"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.WARNING, "WARN": logging.WARNING},
    **{"ERROR": logging.ERROR, "CRITICAL": logging.CRITICAL, "FATAL": logging.CRITICAL},
}


def written_level(text: str) -> int:
    """The level of a line on stderr, a warning where it states none."""
    found = WRITTEN_LEVEL.match(text)
    if found is None:
        return logging.WARNING
    return logging.ERROR if found["traceback"] else WRITTEN_LEVELS[found["glog"] or found["word"]]


class LineReader:
    """Reads one end of a pipe on the loop and hands over each line; of more than a turn may log, many in one text.

    A writer that is faster than WORKER_OUTPUT_TURN_BYTES_MAX per WORKER_OUTPUT_PAUSE_SECONDS fills its pipe and waits:
    it slows only itself.  Owner: this object owns `fd`, and closes it at end-of-file or at the end of `finish`.
    """

    def __init__(self, fd: int, emit: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
        """emit: is given one line, or more with newlines between them, of WORKER_OUTPUT_LINE_BYTES_MAX at most."""
        self._fd = fd
        self._emit = emit
        self._loop = loop
        self._rest = bytearray()
        self._cutting = False  # inside a line that was cut: the remainder is dropped
        self._left: int | None = None  # bytes still to be read of a dead writer's pipe
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._turn)

    @property
    def closed(self) -> bool:
        """Whether all was read and the descriptor is closed."""
        return self._fd < 0

    def finish(self) -> None:
        """The writer is dead: read what the pipe still holds, then close.  Its own children may hold the pipe open."""
        self._left = limits.WORKER_OUTPUT_AFTER_DEATH_BYTES_MAX
        if not self.closed and self._pause is None:
            self._turn()

    def close(self) -> None:
        """Close now, losing what was not read."""
        if self.closed:
            return
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        else:
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _turn(self) -> None:
        taken = 0
        while taken < tuning.WORKER_OUTPUT_TURN_BYTES_MAX:
            try:
                chunk = os.read(self._fd, tuning.WORKER_OUTPUT_TURN_BYTES_MAX - taken)
            except BlockingIOError:
                many = self._hand_over()
                if self._left is not None:
                    self._end()
                elif many:
                    self._rest_a_while()
                return
            if not chunk or self._left == 0:
                self._hand_over()
                self._end()
                return
            taken += len(chunk)
            self._rest += chunk
            if self._left is not None:
                self._left = max(0, self._left - len(chunk))
        self._hand_over()
        self._rest_a_while()

    def _hand_over(self) -> bool:
        """Emit the complete lines of what was read; whether they were too many to be records of their own."""
        end = self._rest.rfind(b"\n") + 1
        lines = bytes(self._rest[:end])
        del self._rest[:end]
        if self._cutting and lines:
            self._cutting = False
            lines = lines[lines.index(b"\n") + 1 :]
        many = lines.count(b"\n") > tuning.WORKER_OUTPUT_TURN_LINES_MAX
        if many:
            self._emit_together(lines)
        else:
            for line in lines.split(b"\n")[:-1]:
                self._emit_cut(line)
        self._cut_overlong()
        return many

    def _emit_together(self, lines: bytes) -> None:
        """Log these lines in as few records as possible.  A record costs some 20 us, however short."""
        at = 0
        while at < len(lines):
            end = lines.rfind(b"\n", at, at + limits.WORKER_OUTPUT_LINE_BYTES_MAX + 1)
            if end < 0:
                end = lines.index(b"\n", at)
            self._emit_cut(lines[at:end])
            at = end + 1

    def _emit_cut(self, line: bytes) -> None:
        most = limits.WORKER_OUTPUT_LINE_BYTES_MAX
        text = line[:most].decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\r")
        self._emit(text if len(line) <= most else f"{text} ... [line cut at {most} bytes]")

    def _cut_overlong(self) -> None:
        if self._cutting:
            self._rest.clear()
        elif len(self._rest) > limits.WORKER_OUTPUT_LINE_BYTES_MAX:
            self._emit_cut(bytes(self._rest))
            self._rest.clear()
            self._cutting = True

    def _rest_a_while(self) -> None:
        self._loop.remove_reader(self._fd)
        self._pause = self._loop.call_later(tuning.WORKER_OUTPUT_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._fd, self._turn)
        self._turn()

    def _end(self) -> None:
        if self._rest and not self._cutting:
            self._emit_cut(bytes(self._rest))
        self._rest.clear()
        self.close()
