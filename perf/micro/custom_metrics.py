"""What a model pays for its own metrics, and the server for reading them at a scrape."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "workers"))

from tisfast_worker.custom_metrics import MetricFamily  # noqa: E402
from tisfast_worker.metric_store import SharedMetrics  # noqa: E402
from tisfast_worker.native import Library, Mapping  # noqa: E402
from tisfast_worker.serving_context import current  # noqa: E402

from tisfast.engine.custom_metrics import CustomMetrics  # noqa: E402
from tisfast.native.channel import Cells  # noqa: E402
from tisfast.processes import metric_messages  # noqa: E402

CALLS = 200_000


def ns(name: str, call: Callable[[], object], calls: int = CALLS) -> None:
    began = time.perf_counter_ns()
    for _ in range(calls):
        call()
    print(f"custom_metrics.{name} {(time.perf_counter_ns() - began) / calls:.1f}")


class Thread:
    """The control thread, without a socket in between."""

    def __init__(self, metrics: CustomMetrics) -> None:
        self._metrics = metrics

    def ask(self, message: dict[str, object]) -> dict[str, object]:
        return metric_messages.answer(self._metrics, "worker", {**message, "n": 1}) or {}

    def send(self, message: dict[str, object]) -> None:
        metric_messages.answer(self._metrics, "worker", message)


def main() -> None:
    cells = Cells()
    metrics = CustomMetrics(cells)
    library = Library(str(ROOT / "workers/libtisfast_shm.so"))
    current().metrics = SharedMetrics(Thread(metrics), library, Mapping(cells.fd, "cells"))
    counters = MetricFamily("bench_counter", "text", MetricFamily.COUNTER)
    sizes = MetricFamily("bench_sizes", "text", MetricFamily.HISTOGRAM)
    counter = counters.Metric({"model": "m"})
    size = sizes.Metric({"model": "m"}, [1, 2, 5, 10, 20, 50, 100])
    ns("increment", lambda: counter.increment(1.0))
    ns("value", counter.value)
    ns("observe", lambda: size.observe(7.0))
    for i in range(100):
        counters.Metric({"i": str(i)})
    ns("read_110_numbers", lambda: list(metrics.read()), 1000)


if __name__ == "__main__":
    main()
