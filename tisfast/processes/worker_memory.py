"""Memory of workers and of what their models have started, as the kernel shares it out.  Layer 4 (processes).

Proportional set size: a page that n processes share counts an n-th in each, so that the sum over all workers is what
they take together.  The kernel walks through the page tables for it: read it in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from tisfast import limits

Key = TypeVar("Key")
PROC = Path("/proc")


def measured(workers: Mapping[Key, Iterable[int]], proc: Path = PROC) -> dict[Key, int]:
    """Bytes that the processes of each key take, with their descendants."""
    return {key: sum(taken_bytes(pid, proc) for pid in pids) for key, pids in workers.items()}


def taken_bytes(pid: int, proc: Path = PROC) -> int:
    """Bytes of one process and its descendants; 0 when it has ended."""
    return sum(pss_bytes(each, proc) for each in family(pid, proc))


def pss_bytes(pid: int, proc: Path = PROC) -> int:
    """Bytes of one process; 0 when it has ended."""
    try:
        text = (proc / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    _, found, rest = text.partition("\nPss:")
    return int(rest.split(maxsplit=1)[0]) * 1024 if found else 0


def family(pid: int, proc: Path) -> list[int]:
    """A process and all that it, or they, have started; bounded."""
    found = [pid]
    for each in found:
        found += _children(each, proc)
        if len(found) > limits.MEMORY_PROCESSES_MAX:
            break
    return found[: limits.MEMORY_PROCESSES_MAX]


def _children(pid: int, proc: Path) -> list[int]:
    try:
        tasks = os.listdir(proc / str(pid) / "task")
        texts = [(proc / str(pid) / "task" / task / "children").read_text() for task in tasks]
    except OSError:  # it has ended, or the kernel does not list children
        return []
    return [int(child) for text in texts for child in text.split()]
