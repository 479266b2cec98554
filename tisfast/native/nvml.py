"""This machine's GPUs through NVIDIA's management library, loaded when there is one.  Layer 1 (native).

The library comes with the driver; ctypes is enough for the functions that are needed, and none of them makes a CUDA
context.  Reading may take milliseconds per GPU.  Numbers count GPUs as nvidia-smi does: in the order of the PCI bus.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

log = logging.getLogger("tisfast.gpu")
LIBRARY: Final = "libnvidia-ml.so.1"
UUID_BYTES: Final = 96
PROCESSES_MAX: Final = 1024
"""Processes of one GPU that are told; where it has more, none is."""
UNKNOWN_BYTES: Final = (1 << 64) - 1
"""What the library says of memory that it may not tell."""


class GpuReading(NamedTuple):
    """One GPU now; None for what it does not tell.  utilization: 0 to 1; energy: joules since the driver was loaded."""

    uuid: str
    utilization: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    power_watts: float | None
    power_limit_watts: float | None
    energy_joules: float | None


class GpuMemory(NamedTuple):
    """Memory of one GPU now, in bytes."""

    free: int
    total: int


class GpuFacts(NamedTuple):
    """Facts of one GPU.  name: number or UUID, as CUDA_VISIBLE_DEVICES may say it; capability: 8.6; None: it does not
    tell."""

    name: str
    capability: float | None


class Gpus(Protocol):
    """All that the server asks of GPUs to place instances: NVML here, an object of the tests' own there.

    name: a number, or the UUID of a GPU or of a MIG part of one.
    """

    def count(self) -> int:
        """GPUs of this machine."""

    def facts(self, name: str) -> GpuFacts | None:
        """None when there is no such GPU."""

    def uuid(self, name: str) -> bytes | None:
        """16 bytes; None when it does not tell."""

    def memory(self, name: str) -> GpuMemory | None:
        """None when it does not tell."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The library, initialised.  library: what ctypes.CDLL returned."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def close(self) -> None:
        """Let go of the library: it answers nothing from now on."""
        self._library.nvmlShutdown()

    def count(self) -> int:
        """See Gpus."""
        count = ctypes.c_uint()
        return 0 if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) else int(count.value)

    def facts(self, name: str) -> GpuFacts | None:
        """See Gpus.  A MIG part has the capability of its GPU."""
        device = self._device(name)
        return None if device is None else GpuFacts(name, self._capability(device))

    def uuid(self, name: str) -> bytes | None:
        """See Gpus."""
        device = self._device(name)
        text = None if device is None else self._uuid(device)
        try:
            return None if text is None else UUID(text.partition("-")[2]).bytes
        except ValueError:
            return None

    def memory(self, name: str) -> GpuMemory | None:
        """See Gpus."""
        device = self._device(name)
        found = None if device is None else _ask(self._library.nvmlDeviceGetMemoryInfo, device, _Memory())
        return None if found is None else GpuMemory(int(found.free), int(found.total))

    def read(self) -> list[GpuReading]:
        """All GPUs; one that cannot be named is left out."""
        readings = (self._read(index) for index in range(self.count()))
        return [reading for reading in readings if reading is not None]

    def processes(self, name: str) -> dict[int, int | None] | None:
        """Bytes of a GPU by the process that has them: by its number outside of containers.

        None for bytes that the library does not tell, and instead of all where it tells no process, as a driver before
        510.
        """
        device, ask = self._device(name), getattr(self._library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
        if device is None or ask is None:
            return None
        found, count = (_Process * PROCESSES_MAX)(), ctypes.c_uint(PROCESSES_MAX)
        if ask(device, ctypes.byref(count), ctypes.byref(found)):
            return None
        told: dict[int, int | None] = {}
        for each in found[: min(count.value, PROCESSES_MAX)]:
            before = told.get(int(each.pid), 0)  # one has several entries where it uses several parts of the GPU
            told[int(each.pid)] = None if before is None or each.used == UNKNOWN_BYTES else before + int(each.used)
        return told

    def _device(self, name: str) -> ctypes.c_void_p | None:
        device = ctypes.c_void_p()
        if name.isdecimal():
            status = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(device))
        else:
            status = self._library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device))
        return None if status else device

    def _capability(self, device: ctypes.c_void_p) -> float | None:
        major, minor, whole = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        ask = self._library.nvmlDeviceGetCudaComputeCapability
        if ask(device, ctypes.byref(major), ctypes.byref(minor)):
            part = self._library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, ctypes.byref(whole))
            if part or ask(whole, ctypes.byref(major), ctypes.byref(minor)):
                return None
        return major.value + minor.value / 10

    def _uuid(self, device: ctypes.c_void_p) -> str | None:
        """`GPU-` or `MIG-`, then the number."""
        text = ctypes.create_string_buffer(UUID_BYTES)
        failed = self._library.nvmlDeviceGetUUID(device, text, ctypes.c_uint(UUID_BYTES))
        return None if failed else text.value.decode()

    def _read(self, index: int) -> GpuReading | None:
        device, library = self._device(str(index)), self._library
        uuid = None if device is None else self._uuid(device)
        if device is None or uuid is None:
            return None
        use = _ask(library.nvmlDeviceGetUtilizationRates, device, _Utilization())
        memory = _ask(library.nvmlDeviceGetMemoryInfo, device, _Memory())
        power = _ask(library.nvmlDeviceGetPowerUsage, device, ctypes.c_uint())
        limit = _ask(library.nvmlDeviceGetEnforcedPowerLimit, device, ctypes.c_uint())
        energy = _ask(library.nvmlDeviceGetTotalEnergyConsumption, device, ctypes.c_ulonglong())
        return GpuReading(
            uuid,
            None if use is None else use.gpu / 100,
            None if memory is None else int(memory.total),
            None if memory is None else int(memory.used),
            None if power is None else power.value / 1000,
            None if limit is None else limit.value / 1000,
            None if energy is None else energy.value / 1000,
        )


def _ask(function: Callable[..., int], device: ctypes.c_void_p, answer: Any) -> Any | None:
    """A fact that the library gives of a device, None when it gives none."""
    return None if function(device, ctypes.byref(answer)) else answer


def open_nvml(load: Callable[[str], Any] = ctypes.CDLL) -> Nvml | None:
    """The machine's NVML, None on a machine without an NVIDIA driver."""
    try:
        library = load(LIBRARY)
    except OSError:
        return None
    status = library.nvmlInit_v2()
    if status:
        log.warning(
            "GPUs cannot be looked at: NVML could not start (its error %d). Look whether 'nvidia-smi' works here",
            status,
        )
        return None
    return Nvml(library)
