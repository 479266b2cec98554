"""What workers print: lines from a pipe to the log, bounded in length and in pace.  Layer 4 (supervise)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from tisfast import limits


class LineReader:
    """Reads one end of a pipe on the loop and hands over each line.

    A writer that is faster than WORKER_OUTPUT_TURN_* per WORKER_OUTPUT_PAUSE_SECONDS fills its pipe and waits: it slows
    nobody but itself.  Owner: this object owns `fd`, and closes it at end-of-file or at the end of `finish`.
    """

    def __init__(self, fd: int, emit: Callable[[str], None], loop: asyncio.AbstractEventLoop) -> None:
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
        lines = 0
        taken = 0
        while lines < limits.WORKER_OUTPUT_TURN_LINES_MAX and taken < limits.WORKER_OUTPUT_TURN_BYTES_MAX:
            lines += self._cut_lines(limits.WORKER_OUTPUT_TURN_LINES_MAX - lines)
            if lines >= limits.WORKER_OUTPUT_TURN_LINES_MAX:
                break
            try:
                chunk = os.read(self._fd, 16384)
            except BlockingIOError:
                if self._left is not None:
                    self._end()
                return
            if not chunk or self._left == 0:
                self._end()
                return
            taken += len(chunk)
            self._rest += chunk
            if self._left is not None:
                self._left = max(0, self._left - len(chunk))
        self._rest_a_while()

    def _cut_lines(self, most: int) -> int:
        """Emit up to `most` complete lines of what was read."""
        count = 0
        while count < most:
            end = self._rest.find(b"\n")
            if end < 0:
                self._cut_overlong()
                return count
            self._line(bytes(self._rest[:end]))
            del self._rest[: end + 1]
            count += 1
        return count

    def _line(self, line: bytes) -> None:
        if self._cutting:
            self._cutting = False
            return
        self._emit_cut(line)

    def _emit_cut(self, line: bytes) -> None:
        most = limits.WORKER_OUTPUT_LINE_BYTES_MAX
        text = line[:most].decode("utf-8", "replace").rstrip("\r")
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
        self._pause = self._loop.call_later(limits.WORKER_OUTPUT_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._fd, self._turn)
        self._turn()

    def _end(self) -> None:
        if self._rest and not self._cutting:
            self._line(bytes(self._rest))
        self._rest.clear()
        self.close()
