"""What this machine offers: cores, memory, GPUs.  Layer 4 (supervise)."""

from __future__ import annotations

import os
from pathlib import Path

from tisfast import limits

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def memory_bytes(cgroup_limits: tuple[Path, ...] = CGROUP_LIMITS) -> int:
    """The machine's memory, or the container's where that is less."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in cgroup_limits:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            most = min(most, int(text))
    return most


def arena_use_bytes() -> int:
    """Most bytes that one arena may hand out at one time."""
    return int(memory_bytes() * limits.ARENA_RAM_SHARE)


def driver_gpus(devices: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """GPUs that the driver shows without its library."""
    try:
        return sum(1 for _ in devices.iterdir())
    except OSError:
        return 0


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Processes that the kernel has killed for want of memory, of the whole machine; 0 where it does not say."""
    try:
        text = vmstat.read_text()
    except OSError:
        return 0
    _, found, rest = text.partition("\noom_kill ")
    return int(rest.split(maxsplit=1)[0]) if found else 0


def threads_share(instances: int) -> int:
    """Threads that one of a model's instances may use for its numerics."""
    return max(1, cores() // max(1, instances))
