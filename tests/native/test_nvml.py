"""GPU facts and readings, with a library of the tests' own behind the ctypes calls."""

from __future__ import annotations

import ctypes

from tisfast.native.nvml import GpuFacts, GpuMemory, GpuReading, open_nvml

NO_SUCH = 3


class Library:
    """Two GPUs; the second one tells nothing but its name."""

    def __init__(self, start=0):
        self.start, self.energy = start, 5_000

    def nvmlInit_v2(self):
        return self.start

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, device):
        device._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, name, device):
        if not name.startswith((b"GPU-", b"MIG-")):
            return NO_SUCH
        device._obj.value = 9 if name.startswith(b"MIG-") else int(name[4:])
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, device, major, minor):
        if device.value == 9:
            return NO_SUCH
        major._obj.value, minor._obj.value = 8, 6
        return self.told(device)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device, whole):
        whole._obj.value = 1
        return 0 if device.value == 9 else NO_SUCH

    def nvmlDeviceGetUUID(self, device, uuid, nbytes):
        uuid.value = f"GPU-{device.value}".encode()
        return 0

    def nvmlDeviceGetUtilizationRates(self, device, out):
        out._obj.gpu = 25
        return self.told(device)

    def nvmlDeviceGetMemoryInfo(self, device, out):
        out._obj.total, out._obj.used, out._obj.free = 1 << 40, 1 << 20, (1 << 40) - (1 << 20)
        return self.told(device)

    def nvmlDeviceGetPowerUsage(self, device, out):
        return self.number(device, out, 70_500)

    def nvmlDeviceGetEnforcedPowerLimit(self, device, out):
        return self.number(device, out, 700_000)

    def nvmlDeviceGetTotalEnergyConsumption(self, device, out):
        return self.number(device, out, self.energy)

    def number(self, device, out, value):
        out._obj.value = value
        return self.told(device)

    def told(self, device):
        return 0 if device.value == 1 else NO_SUCH


def test_readings():
    first, second = open_nvml(lambda _: Library()).read()
    assert first == GpuReading("GPU-1", 0.25, 1 << 40, 1 << 20, 70.5, 700.0, 5.0)
    assert second == GpuReading("GPU-2", None, None, None, None, None, None)


def test_one_gpu_by_number_or_name():
    nvml = open_nvml(lambda _: Library())
    assert nvml.count() == 2
    assert nvml.memory("0") == nvml.memory("GPU-1") == GpuMemory((1 << 40) - (1 << 20), 1 << 40)
    assert nvml.facts("GPU-1") == GpuFacts("GPU-1", 8.6)
    assert nvml.facts("1") == GpuFacts("1", None) and nvml.memory("1") is None
    assert nvml.facts("nobody") is None and nvml.memory("nobody") is None


def test_a_part_of_a_gpu_has_its_capability():
    assert open_nvml(lambda _: Library()).facts("MIG-a") == GpuFacts("MIG-a", 8.6)


def test_a_machine_without_a_driver_has_none():
    assert open_nvml(lambda name: ctypes.CDLL(f"absent-{name}")) is None


def test_a_driver_that_does_not_start_is_told(caplog):
    assert open_nvml(lambda _: Library(start=9)) is None
    assert "NVML could not start (its error 9)" in caplog.text
