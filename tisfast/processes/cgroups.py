"""Limits of this process by control groups, v1 and v2: a container's, or a service's.  Layer 4 (processes)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

OWN = Path("/proc/self/cgroup")
MOUNT = Path("/sys/fs/cgroup")


def cpu_quota(own: Path = OWN, mount: Path = MOUNT) -> float | None:
    """Cores whose time this process may take with its neighbours of the same group; None where nothing bounds it."""
    quotas = []
    for folder in _folders("cpu", own, mount):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):  # neither "max" nor v1's -1
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_bytes(own: Path = OWN, mount: Path = MOUNT) -> int | None:
    """Bytes of memory that this process may take with its neighbours; None where nothing bounds it."""
    texts = [
        _text(folder / name)
        for folder in _folders("memory", own, mount)
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(text) for text in texts if text.isdecimal()), default=None)


def _folders(controller: str, own: Path, mount: Path) -> Iterator[Path]:
    """Those whose limits count: our group's and those of the groups around it.  In a container our group often has a
    path of the machine's, of which only the root is mounted."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top = mount
        elif controller in controllers.split(","):
            top = mount / controller
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        yield from (top / folder for folder in (group, *group.parents) if ".." not in folder.parts)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
