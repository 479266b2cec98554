"""What a step prints, of which the end is kept, until its process has ended.  Layer 5 (convert)."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from subprocess import Popen
from typing import Final

from tisfast import limits

READ_BYTES: Final = 1 << 16
LAST_READS_MAX: Final = 16
"""Behind the end of a process: 1 MiB, as much as a pipe holds."""


class StepOutput:
    """The last CONVERT_LOG_BYTES_READ bytes of a process's standard output, however much it prints.

    process: has a pipe there, which is closed by `close`.
    """

    def __init__(self, process: Popen[bytes]) -> None:
        assert process.stdout is not None
        self._process, self._pipe = process, process.stdout
        self._kept = b""
        os.set_blocking(self._pipe.fileno(), False)

    def read_until_ended(self, seconds_max: float) -> bool:
        """Whether the process has ended in that time; its exit status stays to be asked for."""
        until, pipe = time.monotonic() + seconds_max, self._pipe.fileno()
        ended = os.pidfd_open(self._process.pid)
        try:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            poll.register(pipe, select.POLLIN)
            while True:
                left = until - time.monotonic()
                found = dict(poll.poll(max(0.0, left) * 1000))
                if ended in found or left <= 0:
                    return ended in found
                if pipe in found and not self._read():
                    poll.unregister(pipe)
        finally:
            os.close(ended)

    def close(self) -> str:
        """What has been kept.  The process has ended."""
        for _ in range(LAST_READS_MAX):
            if not self._read():
                break
        self._pipe.close()
        return self._kept.decode("utf-8", "replace")

    def _read(self) -> bool:
        """Whether there may be more."""
        piece = b""
        with suppress(BlockingIOError):
            piece = os.read(self._pipe.fileno(), READ_BYTES)
        self._kept = (self._kept + piece)[-limits.CONVERT_LOG_BYTES_READ :]
        return bool(piece)
