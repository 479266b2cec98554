"""CPU and memory of a machine, from files like /proc's."""

from __future__ import annotations

from tisfast.telemetry.machine_facts import CpuMeter, memory_bytes


def test_utilization_is_the_share_between_two_readings(tmp_path):
    def stat(user, idle):
        (tmp_path / "stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")

    meter = CpuMeter(tmp_path)
    stat(100, 900)
    assert meter.utilization() == 0
    stat(130, 970)
    assert meter.utilization() == 0.3
    assert meter.utilization() == 0


def test_memory_that_can_be_had_on_demand_is_not_used(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 400 kB\n")
    assert memory_bytes(tmp_path) == (1024000, 614400)
