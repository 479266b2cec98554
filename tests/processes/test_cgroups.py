"""Limits of control groups, read from trees of files as the kernel shows them."""

from pathlib import Path

import pytest

from tisfast.processes.cgroups import cpu_quota, memory_bytes

V2 = "0::/system.slice/tisfast.service\n"
V1 = "4:memory:/docker/ab\n1:cpu,cpuacct:/docker/ab\n0::/\n"


@pytest.fixture
def tree(tmp_path):
    """`tree(text of /proc/self/cgroup, path=content, ...)`: what the functions are asked with."""

    def make(own: str, files: dict[str, str]) -> tuple[Path, Path]:
        for name, content in files.items():
            (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "fs" / name).write_text(content + "\n")
        (tmp_path / "cgroup").write_text(own)
        return tmp_path / "cgroup", tmp_path / "fs"

    return make


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000"}, None),
        ("0::/\n", {}, None),
        (V2, {"system.slice/tisfast.service/cpu.max": "50000 100000", "system.slice/cpu.max": "200000 100000"}, 0.5),
        (V2, {"system.slice/tisfast.service/cpu.max": "max 100000", "system.slice/cpu.max": "200000 100000"}, 2.0),
        ("0::/../outside\n", {"cpu.max": "100000 50000"}, 2.0),
        (V1, {"cpu/docker/ab/cpu.cfs_quota_us": "250000", "cpu/docker/ab/cpu.cfs_period_us": "100000"}, 2.5),
        (V1, {"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3.0),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        (V1, {"memory/docker/ab/cpu.cfs_quota_us": "1", "memory/docker/ab/cpu.cfs_period_us": "1"}, None),
    ],
    ids=[
        *("v2", "v2 unbound", "v2 root", "own group", "group around it", "outside"),
        *("v1", "v1 root", "v1 unbound", "other controller"),
    ],
)
def test_the_smallest_quota_of_our_groups_counts(tree, own, files, expected):
    assert cpu_quota(*tree(own, files)) == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "1048576"}, 1048576),
        ("0::/\n", {"memory.max": "max"}, None),
        (V2, {"system.slice/memory.max": "4096"}, 4096),
        (V1, {"memory/memory.limit_in_bytes": "16384", "memory/docker/ab/memory.limit_in_bytes": "8192"}, 8192),
    ],
    ids=["v2", "v2 unbound", "group around it", "v1"],
)
def test_the_smallest_memory_limit_of_our_groups_counts(tree, own, files, expected):
    assert memory_bytes(*tree(own, files)) == expected


def test_a_system_without_control_groups_bounds_nothing(tmp_path):
    assert cpu_quota(tmp_path / "absent", tmp_path) is memory_bytes(tmp_path / "absent", tmp_path) is None
