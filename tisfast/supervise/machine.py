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


def gpus(visible: str | None, devices: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[int, ...]:
    """Ids of the GPUs that models may use, found without CUDA.  visible: CUDA_VISIBLE_DEVICES, None when unset.

    Ids count what is visible, as CUDA does: with `visible` "2,3" they are 0 and 1.
    """
    try:
        present = sum(1 for _ in devices.iterdir())
    except OSError:
        present = 0
    if visible is None:
        return tuple(range(present))
    named = [part for part in visible.split(",") if part.strip() and part.strip() != "-1"]
    return tuple(range(min(present, len(named))))


def device_name(device: int, visible: str | None) -> str:
    """What CUDA_VISIBLE_DEVICES must be for a worker of GPU `device` (an id of `gpus`)."""
    if visible is None:
        return str(device)
    return [part.strip() for part in visible.split(",") if part.strip()][device]


def threads_share(instances: int) -> int:
    """Threads that one of a model's instances may use for its numerics."""
    return max(1, cores() // max(1, instances))
