"""GPU facts and readings, with a library of the tests' own behind the ctypes calls."""

from __future__ import annotations

import ctypes

import pytest

from tests.native.nvml_library import NO_SUCH, Library
from tisfast.native.nvml import GpuFacts, GpuMemory, GpuReading, open_nvml


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


def test_memory_of_processes():
    """Entries of one process are added up; one whose memory is not told has None."""
    nvml = open_nvml(lambda _: Library())
    assert nvml.processes("GPU-1") == {77: (1 << 20) + (1 << 10), 78: 1 << 21, 79: None}
    assert nvml.processes("GPU-2") == nvml.processes("nobody") is None
    assert open_nvml(lambda _: Silent("nvmlDeviceGetComputeRunningProcesses_v3")).processes("GPU-1") is None


def test_a_part_of_a_gpu_has_its_capability():
    assert open_nvml(lambda _: Library()).facts("MIG-a") == GpuFacts("MIG-a", 8.6)


def test_a_machine_without_a_driver_has_none():
    assert open_nvml(lambda name: ctypes.CDLL(f"absent-{name}")) is None


def test_a_driver_that_does_not_start_is_told(caplog):
    assert open_nvml(lambda _: Library(start=9)) is None
    assert "NVML could not start (its error 9). Look whether 'nvidia-smi' works here" in caplog.text


class Silent(Library):
    """Refuses the calls that are named."""

    def __init__(self, *calls):
        super().__init__()
        for call in calls:
            setattr(self, call, lambda *_: NO_SUCH)


def test_a_gpu_that_cannot_be_named_is_left_out():
    class Second(Library):
        def nvmlDeviceGetUUID(self, device, uuid, nbytes):
            return super().nvmlDeviceGetUUID(device, uuid, nbytes) if device.value == 2 else NO_SUCH

    assert [reading.uuid for reading in open_nvml(lambda _: Second()).read()] == ["GPU-2"]


def test_a_gpu_without_a_handle_is_left_out():
    nvml = open_nvml(lambda _: Silent("nvmlDeviceGetHandleByIndex_v2"))
    assert nvml.read() == []
    assert nvml.facts("0") is None
    assert nvml.memory("0") is None
    assert nvml.memory("GPU-1") is not None


def test_a_driver_that_does_not_count_has_no_gpus():
    nvml = open_nvml(lambda _: Silent("nvmlDeviceGetCount_v2"))
    assert (nvml.count(), nvml.read()) == (0, [])


FACTS = {
    "nvmlDeviceGetUtilizationRates": "utilization",
    "nvmlDeviceGetPowerUsage": "power_watts",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit_watts",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_joules",
}


@pytest.mark.parametrize("call", FACTS)
def test_what_a_gpu_does_not_tell_is_missing_alone(call):
    whole = open_nvml(lambda _: Library()).read()[0]
    part = open_nvml(lambda _: Silent(call)).read()[0]
    assert whole._replace(**{FACTS[call]: None}) == part
    assert getattr(whole, FACTS[call]) is not None


def test_a_gpu_that_hides_its_memory_has_neither_number():
    reading = open_nvml(lambda _: Silent("nvmlDeviceGetMemoryInfo")).read()[0]
    assert (reading.memory_total_bytes, reading.memory_used_bytes) == (None, None)


def test_a_part_whose_gpu_tells_nothing_has_no_capability():
    class Hidden(Library):
        def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, device, whole):
            whole._obj.value = 2
            return 0

    assert open_nvml(lambda _: Hidden()).facts("MIG-a") == GpuFacts("MIG-a", None)
    assert open_nvml(lambda _: Silent("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")).facts("MIG-a") == GpuFacts(
        "MIG-a", None
    )


def test_the_driver_s_library_is_looked_for_by_its_name():
    names = []
    assert open_nvml(lambda name: names.append(name) or Library()) is not None
    assert names == ["libnvidia-ml.so.1"]
