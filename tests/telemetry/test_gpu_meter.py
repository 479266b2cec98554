"""GPU readings at intervals, of a source of the tests' own."""

from tisfast.native.nvml import GpuReading
from tisfast.telemetry.gpu_meter import GpuMeter


class Source:
    """Two GPUs; the second one tells nothing but its name."""

    joules = 5.0

    def read(self):
        return [
            GpuReading("GPU-1", 0.25, 1 << 40, 1 << 20, 70.5, 700.0, self.joules),
            GpuReading("GPU-2", None, None, None, None, None, None),
        ]


def test_energy_counts_from_the_start_of_the_server():
    source = Source()
    meter = GpuMeter(source, 3600)
    meter.start()
    assert [reading.energy_joules for reading in meter.readings] == [0, None]
    source.joules += 2.5
    meter._look()
    meter.close()
    assert meter.readings[0].energy_joules == 2.5
