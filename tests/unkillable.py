"""A process that SIGKILL does not end, like one that hangs in a driver's call (state D)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import wait_until

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

    Its other threads end at once, so none of its code runs any more.  Of this thread, with ptrace.
    """
    _ptrace(SEIZE, pid, STOP_IN_EXIT)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_held(pid))
        _ptrace(DETACH, pid, 0)


def is_held(pid: int) -> bool:
    """Whether it would have ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "t"
