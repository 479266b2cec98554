"""Resources of this machine: cores, memory, GPUs.  Layer 4 (processes)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tisfast import limits
from tisfast.processes import cgroups

_NEEDED_CALLS: Final[dict[str, Callable[[], int]]] = {
    "eventfd2": lambda: os.eventfd(0, os.EFD_CLOEXEC),
    "memfd_create": lambda: os.memfd_create("tisfast-probe", os.MFD_CLOEXEC),
    "pidfd_open": lambda: os.pidfd_open(os.getpid()),
}
"""System calls without which no model is served, and that an old kernel lacks or a container's filter may forbid."""


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


def refused_call() -> str:
    """One sentence about the first call that serving needs and this machine refuses; empty where all are there."""
    for name, call in _NEEDED_CALLS.items():
        try:
            os.close(call())
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
                return (
                    f"this machine refuses the system call {name}: {error.strerror}; tisfast needs Linux 5.3 or newer "
                    f"and, in a container, a seccomp profile that allows {', '.join(_NEEDED_CALLS)}, as Docker's does"
                )
    return ""
