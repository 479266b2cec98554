"""What must not grow while a server runs: memory, descriptors, processes, and files in /dev/shm."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from perf.oracle.server import Kind, Server

TRITON_REGION: Final = "triton_python_backend_shm_region_"
MEMORY_SHARE_MAX: Final = 1.05
MEMORY_BYTES_MAX: Final = 6_000_000
"""Proportional memory may grow by 5 % and 6 MB between a warm server and the end: an allocator's fragmentation, which
does not grow with the requests.  A leak of 20 bytes a request is 20 MB after a million requests, and is seen."""


class Held(NamedTuple):
    """What a server and its workers hold at one moment."""

    pss_bytes: int
    descriptors: int
    processes: int
    shm_files: int

    def __str__(self) -> str:
        """One line."""
        files = f"{self.shm_files} files in /dev/shm"
        return f"{self.pss_bytes / 1e6:.1f} MB, {self.descriptors} descriptors, {self.processes} processes, {files}"


def held(server: Server) -> Held:
    """Look at a server now."""
    return Held(server.pss_bytes(), server.descriptors(), len(server.pids()), _shm_files(server.kind))


def _shm_files(kind: Kind) -> int:
    """Named shared memory on the machine.  Regions of a real Triton beside us, or crashed, are not tisfast's."""
    names = os.listdir("/dev/shm") if Path("/dev/shm").is_dir() else []
    return len([name for name in names if kind == "triton" or not name.startswith(TRITON_REGION)])


def growth(warm: Held, end: Held) -> list[str]:
    """Complaints: what grew beyond its bound between two moments."""
    found = []
    most = int(warm.pss_bytes * MEMORY_SHARE_MAX) + MEMORY_BYTES_MAX
    if end.pss_bytes > most:
        found.append(
            f"memory grew from {warm.pss_bytes / 1e6:.1f} to {end.pss_bytes / 1e6:.1f} MB (bound {most / 1e6:.1f})"
        )
    if end.descriptors > warm.descriptors:
        found.append(f"descriptors grew from {warm.descriptors} to {end.descriptors}")
    if end.processes > warm.processes:
        found.append(f"processes grew from {warm.processes} to {end.processes}")
    if end.shm_files > warm.shm_files:
        found.append(f"files in /dev/shm grew from {warm.shm_files} to {end.shm_files}")
    return found


def report(warm: Held, end: Held, say: Callable[[str], None] = print) -> int:
    """Print both and the complaints; the exit status."""
    say(f"warm: {warm}\nend:  {end}")
    complaints = growth(warm, end)
    for each in complaints:
        say(f"GREW: {each}")
    return 1 if complaints else 0
