"""GPUs that the server's processes use, where they run on this machine, by NVML.  Layer 5 (bench)."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tisfast.bench.results import GpuUse, Usage
from tisfast.native.nvml import Nvml
from tisfast.processes.worker_memory import PROC

OUTERMOST: Final = "pid:[4026531836]"
"""The namespace of process numbers outside of all containers, as the kernel names it: NVML's numbers are of it."""


class GpuSample(NamedTuple):
    """One GPU at one look; see GpuUse.  energy_joules: since the driver was loaded."""

    memory_bytes: int | None
    whole: bool
    utilization: float | None
    power_watts: float | None
    energy_joules: float | None


def gpus_of(nvml: Nvml | None, pids: Collection[int], proc: Path = PROC) -> dict[str, GpuSample]:
    """By UUID, also those where none of the processes has memory: they have 0 bytes.

    Within a container NVML's process numbers are others, so nobody knows whose memory it is: all GPUs, as wholes.
    """
    if nvml is None:
        return {}
    found, outermost = {}, _outermost(proc)
    for reading in nvml.read():
        told = nvml.processes(reading.uuid) if outermost else None
        mine = [used for pid, used in (told or {}).items() if pid in pids]
        known = [used for used in mine if used is not None]
        own = sum(known) if len(known) == len(mine) else None
        found[reading.uuid] = GpuSample(
            reading.memory_used_bytes if told is None else own,
            told is None,
            reading.utilization,
            reading.power_watts,
            reading.energy_joules,
        )
    return found


def _outermost(proc: Path) -> bool:
    try:
        return os.readlink(proc / "self/ns/pid") == OUTERMOST
    except OSError:
        return False


def gpu_uses(before: Mapping[str, GpuSample], after: Mapping[str, GpuSample], wall_ns: int) -> dict[str, GpuUse]:
    """Between two looks.  Power is what the energy grew by, where that is told."""
    return {uuid: _use(before.get(uuid), sample, wall_ns) for uuid, sample in after.items()}


def _use(before: GpuSample | None, after: GpuSample, wall_ns: int) -> GpuUse:
    power = after.power_watts
    if before is not None and before.energy_joules is not None and after.energy_joules is not None and wall_ns:
        power = (after.energy_joules - before.energy_joules) / (wall_ns / 1e9)
    return GpuUse(after.memory_bytes, after.whole, after.utilization, power)


def gpus_together(windows: Sequence[Usage]) -> dict[str, GpuUse]:
    """Of several windows: the most memory, and means of the rest by time."""
    found = {}
    for uuid, last in windows[-1].gpus.items():
        uses = [(each.gpus[uuid], each.wall_ns) for each in windows if uuid in each.gpus]
        memory = [use.memory_bytes for use, _ in uses if use.memory_bytes is not None and use.whole == last.whole]
        found[uuid] = GpuUse(
            max(memory, default=None),
            last.whole,
            _mean([(use.utilization, wall) for use, wall in uses]),
            _mean([(use.power_watts, wall) for use, wall in uses]),
        )
    return found


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, wall) for value, wall in values if value is not None]
    total = sum(wall for _, wall in known)
    return sum(value * wall for value, wall in known) / total if total else None
