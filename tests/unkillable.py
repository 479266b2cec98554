"""A process that SIGKILL does not end, like one that hangs in a driver's call (state D)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

SOON = """
from tisfast import limits
limits.KILL_SECONDS_MAX = limits.GPU_TOLD_SECONDS = limits.WORKER_STOP_SECONDS_MAX = 0.5
"""
"""A server's limits, so that it soon goes on without such a process."""
SEIZE, DETACH, STOP_IN_EXIT = 0x4206, 17, 0x40
"""PTRACE_SEIZE, PTRACE_DETACH, PTRACE_O_TRACEEXIT."""


def _ptrace(request: int, pid: int, data: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    library.ptrace.restype = ctypes.c_long
    if library.ptrace(request, pid, None, data) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request:#x}) of process {pid}")


@contextlib.contextmanager
def unkillable(pid: int) -> Iterator[None]:
    """Inside, the process stops in the kernel when it is to end, and no signal ends it.  It ends with the block.

    Its other threads end at once, so none of its code runs any more.  Of this thread, with ptrace: skips where that is
    forbidden.  Before Linux 6.2 a second SIGKILL does end it.
    """
    try:
        _ptrace(SEIZE, pid, STOP_IN_EXIT)
    except PermissionError as error:
        if os.environ.get("REQUIRED") == "1":
            raise
        pytest.skip(f"{error}: in a container it wants --cap-add=SYS_PTRACE, else sysctl kernel.yama.ptrace_scope=0")
    try:
        yield
    finally:
        if not is_held(pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_held(pid))
        _ptrace(DETACH, pid, 0)


def is_held(pid: int) -> bool:
    """Whether it would have ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "t"
