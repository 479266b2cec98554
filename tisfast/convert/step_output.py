"""What a step prints, of which the end is kept, while something is waited for.  Layer 5 (convert)."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import Final

from tisfast import limits

READ_BYTES: Final = 1 << 16
LAST_READS_MAX: Final = 16
"""Behind the end of a process: 1 MiB, as much as a pipe holds."""


class StepOutput:
    """The last CONVERT_LOG_BYTES_READ bytes that come out of a pipe, however many these are.

    given: the pipe's other end, for who prints: it is handed on, and closed here by `given_away`.
    """

    def __init__(self) -> None:
        """Raises OSError where there is no pipe to be had."""
        self._pipe, self.given = os.pipe()
        self._kept = b""
        os.set_blocking(self._pipe, False)

    def given_away(self) -> None:
        """Another process has the end that is written to."""
        os.close(self.given)

    def read_until(self, awaited: int, until: float) -> bool:
        """Whether this descriptor can be read from before that time, of time.monotonic()."""
        poll = select.poll()
        poll.register(awaited, select.POLLIN)
        poll.register(self._pipe, select.POLLIN)
        while True:
            left = until - time.monotonic()
            found = dict(poll.poll(max(0.0, left) * 1000))
            if awaited in found or left <= 0:
                return awaited in found
            if self._pipe in found and not self._read():
                poll.unregister(self._pipe)

    def close(self) -> str:
        """What has been kept.  Nobody reads what comes behind it."""
        for _ in range(LAST_READS_MAX):
            if not self._read():
                break
        os.close(self._pipe)
        return self._kept.decode("utf-8", "replace")

    def _read(self) -> bool:
        """Whether there may be more."""
        piece = b""
        with suppress(BlockingIOError):
            piece = os.read(self._pipe, READ_BYTES)
        self._kept = (self._kept + piece)[-limits.CONVERT_LOG_BYTES_READ :]
        return bool(piece)
