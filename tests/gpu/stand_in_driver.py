"""The stand-in for NVIDIA's driver: built once; what it counts, and faults for it.  Its code: stand_in/state.h."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

SOURCES = Path(__file__).parent / "stand_in"
LIBRARY = "libcuda.so.1"
# In the order of stand_in/state.h, enum counter.
COUNTERS = (
    "host_to_device", "device_to_host", "device_to_device", "host_bytes", "pinned_copies", "allocated", "freed",
    "opened", "closed", "used_after_free", "host_registered", "host_unregistered", "events_made", "events_ended",
    "streams_made", "streams_ended", "operations_held", "used_unpinned", "freed_while_open", "faults_met",
    "managers_begun", "managers_ended", "reset_while_used",
)  # fmt: skip
OUT_OF_MEMORY, INVALID_CONTEXT, LAUNCH_FAILED = 2, 201, 719
NOT_SUPPORTED, GPU_IS_LOST = 3, 15  # of the management library
EVER = 1 << 30  # as `times`
HANGS = -1  # as `code`


def build(folder: Path) -> Path:
    """Compile it into a folder: the path of the library.

    It has no name of its own in it (soname): who opens it by its path has not opened the driver for all of the process.
    """
    path = folder / LIBRARY
    command = [*os.environ.get("CC", "cc").split(), "-std=c11", "-O1", "-fPIC", "-shared", "-pthread"]
    command += ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-o", str(path)]
    subprocess.run([*command, *map(str, sorted(SOURCES.glob("*.c")))], check=True)
    shutil.copy(path, folder / "libnvidia-ml.so.1")
    return path


def logged(number: int) -> str:
    """A GPU in the server's log, by the number that CUDA has for it, where that is the one of the bus."""
    return f"GPU {number} (GPU-57a4d140-0000-0000-0000-0000000000{number:02x})"


class StandIn:
    """GPUs that all processes see whose environment has `TISFAST_STAND_IN`; this process, too."""

    def __init__(self, library: Path) -> None:
        """library: built by `build`."""
        self.library = library
        self._calls = ctypes.CDLL(str(library))
        self._calls.stand_in_allocated.restype = ctypes.c_uint64
        self._before = self._counters()

    def set(self, *, devices: int = 2, device_bytes: int = 1 << 30, delay_us: int = 200, unlike: bool = False) -> None:
        """How many GPUs, the memory of each, how long what is queued waits, and whether the last GPU is the fastest."""
        assert self._calls.stand_in_set(devices, ctypes.c_uint64(device_bytes), delay_us, int(unlike)) == 0

    def reset(self) -> None:
        """As it is at the beginning: no faults, and as many GPUs."""
        self._calls.stand_in_reset()
        self._calls.stand_in_hold(0, -1)
        self.set()
        self.describe()

    def describe(
        self, *, ipc: int = 1, integrated: bool = False, parts: bool = False, capability: float = 9.0
    ) -> None:
        """What the GPUs are.  ipc: -1 for a driver that is older than this question; parts: all are parts of MIG;
        capability: of the last one.
        """
        told = round(10 * capability)
        assert self._calls.stand_in_describe(ipc, int(integrated), int(parts), ctypes.c_uint32(told)) == 0

    @contextlib.contextmanager
    def holding(self, at_least: int = 0, *, device: int = -1) -> Iterator[None]:
        """Meanwhile nothing of so many bytes that is queued in streams of the device is done; -1: of any."""
        assert self._calls.stand_in_hold(1 + at_least, device) == 0
        try:
            yield
        finally:
            self._calls.stand_in_hold(0, -1)

    @contextlib.contextmanager
    def hanging(self, name: str, *, pid: int = 0) -> Iterator[Callable[[], bool]]:
        """Meanwhile calls of `name` do not return; gives whether one has begun.  pid: as of `fail`."""
        before = self.counted()["faults_met"]
        self.fail(name, HANGS, pid=pid)
        try:
            yield lambda: self.counted()["faults_met"] > before
        finally:
            self.fail(name, 0)

    def fail(self, name: str, code: int, *, after: int = 0, times: int = EVER, pid: int = 0) -> None:
        """Have calls of `name` fail, after so many that succeed.

        code 0: no more; pid: in this process only, negative: in all but that one.
        """
        assert self._calls.stand_in_fail(name.encode(), after, times, code, pid) == 0

    def counted(self) -> dict[str, int]:
        """What has been done since this was made, by all processes: other tests have the same folder."""
        return {name: count - self._before[name] for name, count in self._counters().items()}

    def _counters(self) -> dict[str, int]:
        found = (ctypes.c_uint64 * len(COUNTERS))()
        assert self._calls.stand_in_counters(found) == 0
        return dict(zip(COUNTERS, found, strict=True))

    def allocated(self, device: int = 0) -> int:
        """Bytes of memory that is in use."""
        return int(self._calls.stand_in_allocated(device))
