"""GPU figures of a metrics page."""

from __future__ import annotations

import time

from tisfast.bench.server_metrics import Sample, ServerMetrics, combined, read_metrics
from tisfast.errors import Unavailable

PAGE = """# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
nv_gpu_utilization{gpu_uuid="GPU-2"} 0.25
nv_gpu_power_usage{gpu_uuid="GPU-1"} 100.5
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1e+09
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 8e+09
nv_energy_consumption{gpu_uuid="GPU-1"} 7
nv_inference_count{model="m",version="1"} 9
"""


def test_the_figures_of_each_gpu_are_read():
    assert read_metrics(PAGE) == {
        "GPU-1": {"utilization": 0.5, "power_watts": 100.5, "memory_used": 1e9, "memory_total": 8e9},
        "GPU-2": {"utilization": 0.25},
    }


def test_a_page_without_gpus_has_none():
    assert read_metrics("nv_inference_count 9\n") == {}


def test_shares_are_averages_and_memory_is_the_most():
    looks = [{"A": {"utilization": 0.2, "memory_used": 9.0}}, {"A": {"utilization": 0.4, "memory_used": 3.0}}]
    found = combined([Sample(at, gpus) for at, gpus in enumerate(looks)])
    assert found["A"]["utilization"] == (0.2 + 0.4) / 2
    assert found["A"]["memory_used"] == 9


class Pages:
    """A server's metrics, page by page; the last one fails."""

    def __init__(self, *pages: str) -> None:
        self._pages = list(pages)

    def metrics(self, _: str) -> str:
        if not self._pages:
            raise Unavailable("connection refused")
        return self._pages.pop(0)


def test_a_level_in_which_no_look_fell_has_no_figures():
    """Those of an earlier look are of another load."""
    metrics = ServerMetrics(Pages(PAGE), "http://x/metrics", 1000)
    metrics.look()
    now = time.monotonic_ns()
    assert metrics.between(0, now)[0]["GPU-1"]["utilization"] == 0.5
    assert metrics.between(0, now)[1] == ""
    gpus, note = metrics.between(now, now + 1)
    assert gpus == {}
    assert note == "no look at the server's metrics was in this time: lower --metrics-interval, or raise -p"


def test_a_page_that_has_no_figures_of_gpus_is_told():
    metrics = ServerMetrics(Pages("nv_inference_count 9\n"), "http://x/metrics", 1000)
    metrics.look()
    assert metrics.between(0, time.monotonic_ns()) == ({}, "the server's page of metrics has no figures of GPUs")


def test_metrics_that_are_served_no_more_are_told():
    metrics = ServerMetrics(Pages(PAGE), "http://x/metrics", 1)
    metrics.look()
    began = time.monotonic_ns()
    metrics.start()
    deadline = began + 10_000_000_000
    note = ""
    while not note.startswith("the server's metrics could not") and time.monotonic_ns() < deadline:
        gpus, note = metrics.between(began, time.monotonic_ns())
    metrics.close()
    assert gpus == {}
    assert note == "the server's metrics could not be read all the time: connection refused"
