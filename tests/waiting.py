"""Waiting for what other processes do: nothing else here sleeps (test_layers.py holds us to it)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

SECONDS_MAX = 90  # on a machine that has much else to do
LOOK_SECONDS = 0.002


async def until(condition: Callable[[], object]) -> None:
    """Look again and again.  Whoever runs the coroutine ends it some time."""
    while not condition():
        await asyncio.sleep(LOOK_SECONDS)


def wait_until(condition: Callable[[], object], what: Callable[[], object] = str) -> None:
    """The same without a loop.  what: is said when it does not come true."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what()}"
        time.sleep(LOOK_SECONDS)


def has_ended(process: psutil.Process) -> bool:
    """Also when nobody has asked for its exit status yet, and when it ends while we look."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Gate:
    """Python code waits at it, in any process and as often as it likes, until it is opened for good.

    wait: the code, one line.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.wait = f"import fcntl; fcntl.flock(open({str(path)!r}), fcntl.LOCK_SH)"

    def open(self) -> None:
        """Let go what waits, and what will come."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = open
