"""The descriptors that this process has open."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> set[str]:
    """Their numbers.  What earlier tests left to the garbage collector is closed first, not while a test counts."""
    gc.collect()
    return set(os.listdir("/proc/self/fd"))
