"""The server's own memory goes back to the system when what took it is over.  Layer 4 (front).

The C library keeps free pages between blocks that are still in use: hundreds of MB after a burst of large requests.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tisfast import tuning
from tisfast.native.memory import trim_heap

PAGE: Final = os.sysconf("SC_PAGESIZE")
STATM: Final = Path("/proc/self/statm")


def private_bytes() -> int:
    """Resident memory of this process that is no file's; arenas are files."""
    _, resident, shared, *_ = map(int, STATM.read_text().split())
    return (resident - shared) * PAGE


class Heap:
    """Looked at once a second by each front that has connections."""

    def __init__(self) -> None:
        self._looks = 0
        self._least = private_bytes()

    def look(self) -> bool:
        """Give free pages back when memory has grown since that was last done.  False: it was not yet time to look."""
        self._looks += 1
        if self._looks % tuning.HEAP_LOOKS:
            return False
        if private_bytes() > self._least + tuning.HEAP_GROWTH_BYTES:
            trim_heap()
            self._least = private_bytes()
        self._least = min(self._least, private_bytes())
        return True
