"""GPUs through NVIDIA's management library, loaded when there is one (row 21.18).  Layer 4 (front).

The library comes with the driver; ctypes is enough for the seven functions that are needed.  Reading may take
milliseconds per GPU, so a thread of its own reads at intervals and scrapes show the last reading.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

log = logging.getLogger("tisfast.metrics")
LIBRARY: Final = "libnvidia-ml.so.1"
UUID_BYTES: Final = 96


class GpuReading(NamedTuple):
    """One GPU now; None for what it does not tell.  utilization: 0 to 1; energy: joules since the driver was loaded."""

    uuid: str
    utilization: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    power_watts: float | None
    power_limit_watts: float | None
    energy_joules: float | None


class GpuSource(Protocol):
    """Who knows the GPUs."""

    def read(self) -> list[GpuReading]:
        """All of them."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """The library, initialised.  library: what ctypes.CDLL returned."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def read(self) -> list[GpuReading]:
        """All GPUs; one that cannot be named is left out."""
        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        readings = (self._read(index) for index in range(count.value))
        return [reading for reading in readings if reading is not None]

    def _read(self, index: int) -> GpuReading | None:
        device = ctypes.c_void_p()
        uuid = ctypes.create_string_buffer(UUID_BYTES)
        library = self._library
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
            return None
        if library.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(UUID_BYTES)):
            return None
        use = _ask(library.nvmlDeviceGetUtilizationRates, device, _Utilization())
        memory = _ask(library.nvmlDeviceGetMemoryInfo, device, _Memory())
        power = _ask(library.nvmlDeviceGetPowerUsage, device, ctypes.c_uint())
        limit = _ask(library.nvmlDeviceGetEnforcedPowerLimit, device, ctypes.c_uint())
        energy = _ask(library.nvmlDeviceGetTotalEnergyConsumption, device, ctypes.c_ulonglong())
        return GpuReading(
            uuid.value.decode(),
            None if use is None else use.gpu / 100,
            None if memory is None else int(memory.total),
            None if memory is None else int(memory.used),
            None if power is None else power.value / 1000,
            None if limit is None else limit.value / 1000,
            None if energy is None else energy.value / 1000,
        )


def _ask(function: Callable[..., int], device: ctypes.c_void_p, answer: Any) -> Any | None:
    """What the library says of a device, None when it does not say."""
    return None if function(device, ctypes.byref(answer)) else answer


def open_nvml(load: Callable[[str], Any] = ctypes.CDLL) -> Nvml | None:
    """The machine's NVML, None on a machine without an NVIDIA driver."""
    try:
        library = load(LIBRARY)
    except OSError:
        return None
    status = library.nvmlInit_v2()
    if status:
        log.warning("GPU metrics are not available: NVML could not start (its error %d)", status)
        return None
    return Nvml(library)


class GpuMeter:
    """Reads a source at intervals.  Energy counts from the first reading on, as Triton's does."""

    def __init__(self, source: GpuSource, interval_seconds: float) -> None:
        self._source = source
        self._interval_seconds = interval_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tisfast-gpus", daemon=True)
        self._latest: Sequence[GpuReading] = ()
        self._energy_before: dict[str, float] = {}

    def start(self) -> None:
        """Read once now, and from now on in a thread."""
        self._look()
        self._thread.start()

    def close(self) -> None:
        """Read no more."""
        self._stopping.set()

    @property
    def readings(self) -> Sequence[GpuReading]:
        """The last ones."""
        return self._latest

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_seconds):
            self._look()

    def _look(self) -> None:
        self._latest = [self._counted(reading) for reading in self._source.read()]

    def _counted(self, reading: GpuReading) -> GpuReading:
        if reading.energy_joules is None:
            return reading
        before = self._energy_before.setdefault(reading.uuid, reading.energy_joules)
        return reading._replace(energy_joules=reading.energy_joules - before)
