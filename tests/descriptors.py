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
