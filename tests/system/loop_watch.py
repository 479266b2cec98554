"""For how long the loop of a server is held: measured by itself, and without what a busy machine adds."""

from __future__ import annotations

import struct
from pathlib import Path

_FAULT = """
import mmap, struct, time, uvloop

made = uvloop.new_event_loop

def looked_at():
    loop = made()
    with open({path!r}, "r+b") as file:
        longest = mmap.mmap(file.fileno(), 8)
    before = None

    def look():
        nonlocal before
        with open("/proc/thread-self/schedstat") as file:
            now = time.monotonic_ns() - int(file.read().split()[1])  # less what it has waited for a processor
        if before is not None and now - before > struct.unpack("q", longest)[0]:
            longest[:] = struct.pack("q", now - before)
        before = now
        loop.call_later(0.005, look)

    loop.call_soon(look)
    return loop

uvloop.new_event_loop = looked_at
"""


class Looks:
    """A loop that looks at its clock each 5 ms.  `fault`: what is executed in the server before it starts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "looks"
        self._path.write_bytes(bytes(8))
        self.fault = _FAULT.format(path=str(self._path))

    def forget(self) -> None:
        """Measure from now on."""
        with self._path.open("r+b") as file:
            file.write(bytes(8))

    def longest(self) -> float:
        """Seconds between two looks, at most, less those in which the loop waited for a processor."""
        (ns,) = struct.unpack("q", self._path.read_bytes())
        assert ns, "the loop has not looked"
        return ns / 1e9
