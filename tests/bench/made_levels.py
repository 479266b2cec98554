"""Levels and runs whose latencies the tests choose."""

from __future__ import annotations

import numpy as np

from tisfast.bench.histogram import Histogram
from tisfast.bench.results import (
    FAILED,
    RECORD,
    ClientCost,
    Errors,
    Level,
    Measurement,
    Run,
    ServerSplit,
    Settings,
    Target,
    Window,
)

SLICE_NS = 100_000_000
BEGAN = 5_000_000_000
REALTIME = 1_795_000_000_000_000_000


def histogram_of(durations) -> Histogram:
    counted = Histogram()
    counted.record_all(np.asarray(durations, np.float64).astype(np.int64).ravel())
    return counted


def windows_of(durations) -> tuple[Histogram, tuple[Window, ...]]:
    """Rows of latencies as windows of 100 ms."""
    windows = tuple(
        Window(BEGAN + at * SLICE_NS, BEGAN + (at + 1) * SLICE_NS, len(row), histogram_of(row).to_bytes())
        for at, row in enumerate(durations)
    )
    return histogram_of(durations), windows


def server_of(count: int, **more) -> ServerSplit:
    """A split of 20 µs overhead, 100 queue, 30, 400 and 50 compute, executed in batches of 2."""
    values = {
        "inference_count": count,
        "execution_count": count // 2,
        "success_count": count,
        "success_ns": count * 600_000,
        "queue_count": count,
        "queue_ns": count * 100_000,
        "compute_input_count": count,
        "compute_input_ns": count * 30_000,
        "compute_infer_count": count,
        "compute_infer_ns": count * 400_000,
        "compute_output_count": count,
        "compute_output_ns": count * 50_000,
        "batch_sizes": {2: count // 2},
    }
    return ServerSplit("add_sub", "1", **(values | more))


def level_of(durations, level=None, **more) -> Measurement:
    total, windows = windows_of(durations)
    count = total.count
    records = np.zeros(count + 1, RECORD)
    records["sent"] = records["intended"] = BEGAN + np.arange(count + 1) * 1000
    records["first"] = records["last"] = records["sent"] + 700_000
    records["responses"] = 1
    records["flags"][-1] = FAILED
    values = {
        "began_ns": BEGAN,
        "ended_ns": windows[-1].ended_ns,
        "began_realtime_ns": REALTIME,
        "requests": count + 1,
        "completed": count,
        "responses": count,
        "delayed": 0,
        "errors": Errors(1, 1, 0, {("503", "the queue <is> full"): 1}, ("the queue <is> full", 0.25)),
        "response": total,
        "service": total,
        "first_byte": total,
        "windows": windows,
        "sent_bytes": 100 * count,
        "received_bytes": 200 * count,
        "server": server_of(count),
        "client": ClientCost(
            10**8, 10**9, 2 * 10**8, 0, 10**6, histogram_of([1000] * 10), (count + 1) * 8_000, count * 4_000
        ),
        "stable": True,
        "reason": "the p99 latency is known within 2 %",
        "records": (records[: count // 2], records[count // 2 :]),
    }
    return Measurement(level=level or Level("concurrency", 4.0), **(values | more))


def run_of(*levels: Measurement, settings: Settings | None = None, target=None) -> Run:
    return Run(
        target or Target("localhost:8000", "http", "add_sub", batch_size=1),
        settings or Settings(),
        ("-m", "add_sub", "--concurrency-range", "4"),
        {"cpu": "a processor", "cores": "2"},
        "tisfast 0.1",
        levels,
    )


def latencies_by_window(windows: tuple[Window, ...]) -> list[Histogram]:
    return [each.latency for each in windows]


def latencies(median_us: float, *, windows: int = 40, requests: int = 100, seed: int = 1) -> np.ndarray:
    """Log-normal, ns."""
    return np.random.default_rng(seed).lognormal(np.log(median_us * 1000), 0.3, (windows, requests))
