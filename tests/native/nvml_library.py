"""NVML for tests: a library behind the ctypes calls, with two GPUs."""

from __future__ import annotations

import threading

NO_SUCH = 3


class Library:
    """Two GPUs; the second one tells nothing but its name."""

    def __init__(self, start=0):
        self.start, self.energy = start, 5_000
        self.shut, self.ended = 0, threading.Event()
        self.running = [(77, 1 << 20), (78, 1 << 21), (77, 1 << 10), (79, (1 << 64) - 1)]

    def nvmlInit_v2(self):
        return self.start

    def nvmlShutdown(self):
        self.shut += 1
        self.ended.set()
        return 0

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

    def nvmlDeviceGetComputeRunningProcesses_v3(self, device, count, found):
        assert count._obj.value == 1024
        count._obj.value = len(self.running)
        for entry, (pid, used) in zip(found._obj, self.running, strict=False):
            entry.pid, entry.used = pid, used
        return self.told(device)

    def number(self, device, out, value):
        out._obj.value = value
        return self.told(device)

    def told(self, device):
        return 0 if device.value == 1 else NO_SUCH
