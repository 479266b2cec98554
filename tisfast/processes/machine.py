"""Resources of this machine: cores, memory, GPUs.  Layer 4 (processes)."""

from __future__ import annotations

import os
from pathlib import Path

from tisfast import limits
from tisfast.processes import cgroups


def cores(own: Path = cgroups.OWN, mount: Path = cgroups.MOUNT) -> int:
    """Cores that this process can keep busy: those that it may run on, and no more than its quota pays for.

    Rounded down: threads beyond a quota are stopped all at a time, and those that wait for each other lose most by it.
    """
    allowed = len(os.sched_getaffinity(0))
    quota = cgroups.cpu_quota(own, mount)
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def memory_bytes() -> int:
    """The machine's memory, or the container's where that is less."""
    machines = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    bound = cgroups.memory_bytes()
    return machines if bound is None else min(machines, bound)


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
