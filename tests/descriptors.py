"""The descriptors that this process has open."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> set[str]:
    """Their numbers.  What earlier tests left to the garbage collector is closed first, not while a test counts.

    Threads and processes of earlier tests may still close one: what must not be is one more, so compare with <=.
    """
    gc.collect()
    return set(os.listdir("/proc/self/fd"))


def leads_to(fd: int, path: str) -> bool:
    """Whether a descriptor is open and is that file.

    To see that it is closed, do not close it: by then its number may be that of a file of another thread.
    """
    wanted = os.stat(path)
    try:
        return os.path.samestat(os.fstat(fd), wanted)
    except OSError:
        return False
