"""GPUs of a server on this machine, with a library of the tests' own behind NVML's calls."""

from __future__ import annotations

import os
import re
import socket

import pytest

from tests.bench.made_levels import latencies, level_of, run_of, server_of
from tests.native.nvml_library import Library
from tisfast.bench.json_output import document
from tisfast.bench.openmetrics import openmetrics
from tisfast.bench.results import GpuUse, Settings, Usage
from tisfast.bench.server_gpus import OUTERMOST, GpuSample, gpu_uses, gpus_of, gpus_together
from tisfast.bench.server_processes import ServerProcesses, used
from tisfast.bench.server_side import Models, ServerSide
from tisfast.bench.text import level_text
from tisfast.client.address import Address
from tisfast.native.nvml import open_nvml


@pytest.fixture
def outermost(tmp_path):
    """A /proc as it is outside of containers."""
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(OUTERMOST)
    return tmp_path


def test_memory_is_that_of_the_servers_processes(outermost):
    nvml = open_nvml(lambda _: Library())
    found = gpus_of(nvml, {77, 78, 5}, outermost)
    assert found["GPU-1"] == GpuSample((1 << 20) + (1 << 10) + (1 << 21), False, 0.25, 70.5, 5.0)
    assert found["GPU-2"] == GpuSample(None, True, None, None, None)  # it tells no process
    assert gpus_of(None, {77}, outermost) == {}


def test_a_server_that_uses_no_gpu_has_no_memory_there(outermost):
    nvml = open_nvml(lambda _: Library())
    assert gpus_of(nvml, {5}, outermost)["GPU-1"] == GpuSample(0, False, 0.25, 70.5, 5.0)
    assert gpus_of(nvml, {77, 79}, outermost)["GPU-1"].memory_bytes is None  # 79 has memory, and nobody knows how much


def test_in_a_container_nobody_knows_whose_memory_it_is(tmp_path):
    """A process of the server has the number that a stranger has outside."""
    found = gpus_of(open_nvml(lambda _: Library()), {77}, tmp_path)
    assert found["GPU-1"] == GpuSample(1 << 20, True, 0.25, 70.5, 5.0)
    assert found["GPU-2"] == GpuSample(None, True, None, None, None)


def test_power_is_what_the_energy_grew_by():
    before, after = GpuSample(10, False, 0.5, 99.0, 100.0), GpuSample(20, False, 0.75, 99.0, 400.0)
    assert gpu_uses({"G": before}, {"G": after}, 2_000_000_000) == {"G": GpuUse(20, False, 0.75, 150.0)}
    assert gpu_uses({}, {"G": after}, 2_000_000_000) == {"G": GpuUse(20, False, 0.75, 99.0)}


def test_windows_are_put_together_by_their_time():
    uses = [GpuUse(30, False, 0.2, 100.0), GpuUse(20, False, 0.8, None)]
    windows = [Usage(1, "s", 1, 0, wall, 0, {"G": use}) for wall, use in zip((1, 3), uses, strict=True)]
    (found,) = gpus_together(windows).values()
    assert (found.memory_bytes, found.power_watts) == (30, 100.0)
    assert found.utilization == pytest.approx(0.65)


def test_a_server_is_looked_at_with_its_gpus():
    library = Library()
    library.running = [(os.getpid(), 123)]
    with socket.create_server(("127.0.0.1", 0)) as mine:
        address = Address("127.0.0.1", mine.getsockname()[1], grpc=False, tls=False)
        processes = ServerProcesses(address, open_gpus=lambda: open_nvml(lambda _: library))
        before = processes.look()
        after = processes.look()
    assert used(before, after).gpus["GPU-1"].memory_bytes == 123
    assert not used(before, after).gpus["GPU-1"].whole


def test_nvml_is_shut_down_at_the_end():
    class Nothing:
        def statistics(self, _):
            return []

    library = Library()
    with socket.create_server(("127.0.0.1", 0)) as mine:
        address = Address("127.0.0.1", mine.getsockname()[1], grpc=False, tls=False)
        processes = ServerProcesses(address, open_gpus=lambda: open_nvml(lambda _: library))
        side = ServerSide(Nothing(), Models("", ""), processes)
        assert side.look().result(10).sample is not None
        assert library.shut == 0
        for _ in range(2):
            side.close()
    assert library.ended.wait(10)
    assert library.shut == 1


def test_all_outputs_show_them():
    gpus = {"GPU-1": GpuUse(2_500_000, False, 0.43, 100.0), "GPU-2": GpuUse(None, True, None, None)}
    gpus["GPU-3"] = GpuUse(0, False, 0.9, 300.0)  # of somebody else
    level = level_of(latencies(1000), server=server_of(1000, usage=Usage(7, "s", 1, 10, 20, 30, gpus)))
    lines = level_text(level, Settings(), 1)
    assert "    GPU-1: 43 % busy, 2.5 MB of memory, 100.0 W (memory of these processes)" in lines
    assert "    GPU-2: it tells nothing (all that is there, as NVML does not tell whose it is)" in lines
    told = document(run_of(level))["levels"][0]["server"]["usage"]["gpus"]
    assert told["GPU-1"] == {"memory_bytes": 2_500_000, "whole": False, "utilization": 0.43, "power_watts": 100.0}
    metrics = "".join(openmetrics(run_of(level)))
    assert re.search(r'^tisfast_bench_server_gpu_memory_bytes\{.*gpu="GPU-1".*\} 2500000', metrics, re.M)
    assert 'gpu="GPU-2"' not in metrics
    assert not any("GPU-3" in each for each in (metrics, *lines, *told))
