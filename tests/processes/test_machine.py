import os

import pytest

from tisfast.processes import machine

ALLOWED = len(os.sched_getaffinity(0))


def test_gpus_without_the_management_library(tmp_path):
    for bus in ("a", "b", "c"):
        (tmp_path / bus).mkdir()
    assert machine.driver_gpus(tmp_path) == 3
    assert machine.driver_gpus(tmp_path / "absent") == 0


def test_the_kernel_counts_what_it_killed_for_memory(tmp_path):
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_free_pages 12\noom_kill 7\nnuma_hit 1\n")
    assert machine.oom_kills(vmstat) == 7
    vmstat.write_text("nr_free_pages 12\n")
    assert machine.oom_kills(vmstat) == machine.oom_kills(tmp_path / "absent") == 0
    assert machine.oom_kills() >= 0


@pytest.mark.parametrize(
    ("quota", "expected"), [("max", ALLOWED), (100000 * (ALLOWED + 1), ALLOWED), (190000, 1), (50000, 1)]
)
def test_cores_are_those_allowed_and_those_that_a_quota_pays_for(tmp_path, quota, expected):
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    assert machine.cores(tmp_path / "cgroup", tmp_path) == expected


def test_instances_share_the_cores():
    assert machine.threads_share(1) == machine.cores()
    assert machine.threads_share(10_000) == 1
