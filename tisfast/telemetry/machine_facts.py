"""CPU and memory of this machine, from /proc.  Layer 4 (telemetry)."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


class CpuMeter:
    """Share of CPU time used between two readings."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._busy = self._total = 0

    def utilization(self) -> float:
        """0 to 1 since the last call; 0 on the first, as Triton's first interval."""
        fields = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:9]
        times = [int(field) for field in fields]
        total, busy = sum(times), sum(times) - times[3] - times[4]  # idle, iowait
        spent, used = total - self._total, busy - self._busy
        first, self._total, self._busy = self._total == 0, total, busy
        return 0.0 if first or spent <= 0 else used / spent


def memory_bytes(proc: Path = _PROC) -> tuple[int, int]:
    """Memory of the machine: total, and used (what is neither free nor given up on demand)."""
    kib = {}
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            kib[name] = int(value.split()[0])
    return kib["MemTotal"] * 1024, (kib["MemTotal"] - kib["MemAvailable"]) * 1024
