"""The server's processes, where they run on this machine: CPU time, memory and GPUs.  Layer 5 (bench)."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tisfast.bench.results import Usage
from tisfast.bench.server_gpus import GpuSample, gpu_uses, gpus_of
from tisfast.client.address import Address
from tisfast.native.nvml import Nvml, open_nvml
from tisfast.processes.worker_memory import PROC, family, pss_bytes

LISTENS: Final = "0A"
"""State of a socket in /proc/net/tcp."""
TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
SOCKET: Final = re.compile(r"socket:\[(\d+)\]")


class Sample(NamedTuple):
    """What they have used until now.  cpu_ns: by process; memory_bytes: proportional set size, 0: not readable;
    gpus: by UUID."""

    pid: int
    name: str
    at_ns: int
    cpu_ns: Mapping[int, int]
    memory_bytes: int
    gpus: Mapping[str, GpuSample] = MappingProxyType({})


class ServerProcesses:
    """Looks at the process that listens at the server's port, and at all that it has started.

    Nothing is seen of a server on another machine, in another network namespace, or of another user.
    """

    def __init__(self, address: Address, proc: Path = PROC, open_gpus: Callable[[], Nvml | None] = open_nvml) -> None:
        self._address, self._proc, self._open_gpus = address, proc, open_gpus
        self._nvml: Nvml | None = None
        self._pid: int | None = None
        self._sought = False

    def look(self) -> Sample | None:
        """None where there is nothing to be seen."""
        if not self._sought:  # once: it takes some ms
            self._sought = True
            self._pid = listener(self._address.port, self._proc) if is_here(self._address.host) else None
            self._nvml = None if self._pid is None else self._open_gpus()
        pid = self._pid
        if pid is None:
            return None
        try:
            name = (self._proc / str(pid) / "comm").read_text().strip()
        except OSError:
            return None
        pids = family(pid, self._proc)
        memory = sum(pss_bytes(each, self._proc) for each in pids)
        gpus = gpus_of(self._nvml, pids, self._proc)
        return Sample(pid, name, time.monotonic_ns(), {each: cpu_ns(each, self._proc) for each in pids}, memory, gpus)

    def close(self) -> None:
        """No further look: let go of NVML."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            nvml.close()


def used(before: Sample | None, after: Sample | None) -> Usage | None:
    """Between two looks.  Time of a process that has ended meanwhile is not known."""
    if before is None or after is None or before.pid != after.pid:
        return None
    cpu = sum(max(spent - before.cpu_ns.get(pid, 0), 0) for pid, spent in after.cpu_ns.items())
    wall = after.at_ns - before.at_ns
    gpus = gpu_uses(before.gpus, after.gpus, wall)
    return Usage(after.pid, after.name, len(after.cpu_ns), cpu, wall, after.memory_bytes, gpus)


def is_here(host: str) -> bool:
    """The host is this machine: one of its addresses can be bound."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(*found[:3]) as probe:
            probe.bind(found[4])
    except OSError:
        return False
    return True


def listener(port: int, proc: Path = PROC) -> int | None:
    """The process that listens at a port: of several, as a server and its children, the oldest one."""
    inodes = set(_listening(port, proc))
    if not inodes:
        return None
    pids = sorted(int(each) for each in os.listdir(proc) if each.isdecimal())
    return next((pid for pid in pids if not inodes.isdisjoint(_sockets(pid, proc))), None)


def _listening(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "self/net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _sockets(pid: int, proc: Path) -> set[str]:
    found = set()
    folder = proc / str(pid) / "fd"
    with suppress(OSError):  # it has ended, or is another user's
        for each in os.listdir(folder):
            with suppress(FileNotFoundError):  # closed meanwhile, as the one of this list is
                matched = SOCKET.fullmatch(os.readlink(folder / each))
                if matched is not None:
                    found.add(matched[1])
    return found


def cpu_ns(pid: int, proc: Path = PROC) -> int:
    """CPU time of all threads of a process, as the kernel counts it: in steps of 10 ms; 0 when it has ended."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) * TICK_NS
