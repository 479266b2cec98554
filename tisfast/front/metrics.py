"""GET /metrics: Triton's families under Triton's names, then tisfast's own (rows 21.02 to 21.10, 21.17, 21.19, 21.23).

Counters live in the engine and are read when scraped: the hot path pays an addition.  prometheus_client takes 60 ms to
import and is needed only by who is scraped, so it is imported at the first scrape.  Layer 4 (front).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tisfast.front.machine_facts import CpuMeter, memory_bytes
from tisfast.front.response import Response, http_error

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from tisfast.engine.registry import Registry
    from tisfast.engine.runtime import ModelRuntime
    from tisfast.wire.head import Head

CONTENT_TYPE: Final = "text/plain; charset=utf-8"
_TOTAL: Final = re.compile(rb"^(# (?:HELP|TYPE) nv_\w+)_total ", re.MULTILINE)
"""The library ends every counter's family name so; Triton's names have no such end."""

_PHASES: Final = (
    ("request", "success", "inference request duration in microseconds (includes cached requests)"),
    ("queue", "queue", "inference queuing duration in microseconds (includes cached requests)"),
    ("compute_input", "compute_input", "compute input duration in microseconds (does not include cached requests)"),
    ("compute_infer", "compute_infer", "compute inference duration in microseconds (does not include cached requests)"),
    (
        "compute_output",
        "compute_output",
        "inference compute output duration in microseconds (does not include cached requests)",
    ),
)
"""Name in the metric, key of the statistics, help text."""

Samples = Iterable[tuple[dict[str, str], float]]


class MetricsRoutes:
    """The handler of the metrics listener.

    worker_restarts: model, version and restarts of its workers so far, for each model version.  cpu: whether to report
    the machine's CPU and memory (--allow-cpu-metrics).
    """

    def __init__(
        self,
        registry: Registry,
        worker_restarts: Callable[[], Iterable[tuple[str, str, int]]],
        *,
        cpu: bool = True,
    ) -> None:
        self._collector = Collector(registry, worker_restarts, cpu=cpu)

    def handle(self, head: Head, body: bytes) -> Response:
        """Row 1.37."""
        if head.path not in ("/metrics", "/metrics/"):
            response = http_error(404, "Not Found")
        elif head.method != "GET":
            response = http_error(405, "Method Not Allowed")
        else:
            return Response(200, CONTENT_TYPE, self._collector.exposition())
        return response if head.method != "HEAD" else response._replace(body=b"")


class Collector:
    """A prometheus_client collector in a registry of its own."""

    def __init__(
        self,
        registry: Registry,
        worker_restarts: Callable[[], Iterable[tuple[str, str, int]]],
        *,
        cpu: bool = True,
    ) -> None:
        self._cpu_wanted = cpu
        self._registry = registry
        self._worker_restarts = worker_restarts
        self._cpu = CpuMeter()

    def exposition(self) -> bytes:
        """Prometheus text of everything."""
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 (60 ms)

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return _TOTAL.sub(rb"\1 ", generate_latest(registry))

    def describe(self) -> list[Metric]:
        """Nothing at registration: model versions come and go."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All families, in Triton's order."""
        runtimes = self._registry.runtimes()
        yield from self._counts(runtimes)
        yield from self._durations(runtimes)
        yield self._pending(runtimes)
        yield from self._machine()
        yield from self._own(runtimes)

    def _counts(self, runtimes: list[ModelRuntime]) -> Iterator[Metric]:
        yield _family(
            "nv_inference_request_success",
            "Number of successful inference requests, all batch sizes",
            "counter",
            ((_labels(r), r.stats.inference_stats()["success"]["count"]) for r in runtimes),
        )
        yield _family(
            "nv_inference_request_failure",
            "Number of failed inference requests, all batch sizes",
            "counter",
            (sample for r in runtimes for sample in _failures(r)),
        )
        yield _family(
            "nv_inference_count",
            "Number of inferences performed (does not include cached requests)",
            "counter",
            ((_labels(r), r.stats.inference_count) for r in runtimes),
        )
        yield _family(
            "nv_inference_exec_count",
            "Number of model executions performed (does not include cached requests)",
            "counter",
            ((_labels(r), r.stats.execution_count) for r in runtimes),
        )

    def _durations(self, runtimes: list[ModelRuntime]) -> Iterator[Metric]:
        tallies = [(_labels(r), r.stats.inference_stats()) for r in runtimes]
        for name, key, text in _PHASES:
            yield _family(
                f"nv_inference_{name}_duration_us",
                f"Cumulative {text}",
                "counter",
                ((labels, tally[key]["ns"] // 1000) for labels, tally in tallies),
            )

    def _pending(self, runtimes: list[ModelRuntime]) -> Metric:
        return _family(
            "nv_inference_pending_request_count",
            "Instantaneous number of pending requests awaiting execution per-model.",
            "gauge",
            ((_labels(r), r.stats.pending) for r in runtimes),
        )

    def _machine(self) -> Iterator[Metric]:
        total, used = memory_bytes()
        for name, text, value in (
            # There is no pinned pool: tensors lie in arenas, which tisfast_arena_bytes shows.
            ("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes", 0),
            ("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", 0),
            ("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", self._cpu.utilization()),
            ("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", total),
            ("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", used),
        ):
            if self._cpu_wanted or not name.startswith("nv_cpu_"):
                yield _family(name, text, "gauge", [({}, value)])

    def _own(self, runtimes: list[ModelRuntime]) -> Iterator[Metric]:
        yield _family(
            "tisfast_worker_restarts",
            "Worker processes restarted after their death",
            "counter",
            (({"model": m, "version": v}, count) for m, v, count in self._worker_restarts()),
            suffix="_total",
        )
        yield _family(
            "tisfast_arena_bytes",
            "Shared memory of a model version: requests now, at most, and as the system counts them; answers likewise",
            "gauge",
            (sample for r in runtimes for sample in _arena(r)),
        )
        yield _batch_sizes(runtimes)


def _family(name: str, text: str, kind: str, samples: Samples, suffix: str = "") -> Metric:
    from prometheus_client.core import Metric  # noqa: PLC0415 (60 ms)

    family = Metric(name, text, kind)
    for labels, value in samples:
        family.add_sample(name + suffix, labels, value)
    return family


def _labels(runtime: ModelRuntime) -> dict[str, str]:
    return {"model": runtime.signature.name, "version": runtime.signature.version}


def _failures(runtime: ModelRuntime) -> Samples:
    stats = runtime.stats
    counts = {
        "REJECTED": stats.rejected,
        "CANCELED": stats.canceled,
        "BACKEND": stats.backend_failed,
        "OTHER": stats.other_failed,
    }
    return [({**_labels(runtime), "reason": reason}, count) for reason, count in counts.items()]


def _arena(runtime: ModelRuntime) -> Samples:
    arena = runtime.arena
    answers = sum(link.output.resident_bytes for link in runtime.links if link.output is not None)
    sizes = {
        "used": arena.used_bytes,
        "limit": arena.use_bytes_max,
        "resident": arena.resident_bytes,
        "output_resident": answers,
    }
    return [({**_labels(runtime), "kind": kind}, value) for kind, value in sizes.items()]


def _batch_sizes(runtimes: list[ModelRuntime]) -> Metric:
    """Inferences per execution; buckets are powers of two up to each model's largest batch."""
    from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415 (60 ms)

    family = HistogramMetricFamily("tisfast_batch_size", "Inferences per execution", labels=["model", "version"])
    for runtime in runtimes:
        executions = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in runtime.stats.batches()}
        largest = max(runtime.signature.max_batch_size, 1)
        bounds = [1 << power for power in range((largest - 1).bit_length() + 1)]
        buckets = [(f"{le}.0", float(sum(n for size, n in executions.items() if size <= le))) for le in bounds]
        buckets.append(("+Inf", float(sum(executions.values()))))
        total = sum(size * n for size, n in executions.items())
        family.add_metric([runtime.signature.name, runtime.signature.version], buckets=buckets, sum_value=total)
    return family
