"""GET /metrics: Triton's families under Triton's names, then tisfast's own.  Layer 4 (telemetry).

Counters live in the engine and are read when scraped: the hot path pays additions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tisfast import tuning
from tisfast.config.metric_control import FIRST_RESPONSE
from tisfast.config.metrics_settings import MetricsSettings
from tisfast.operations.http_response import Response, http_error
from tisfast.operations.slices import in_slices
from tisfast.telemetry import metric_families
from tisfast.telemetry.cache_metrics import CacheSummaries, SharedCacheFace, of_shared, of_store, per_model
from tisfast.telemetry.machine_facts import CpuMeter, memory_bytes
from tisfast.telemetry.metric_families import FamilyText, Labels, Samples, family, labels_of
from tisfast.telemetry.summaries import Windows

if TYPE_CHECKING:
    from asyncio import Future

    from tisfast.engine.custom_metrics import FamilyReading
    from tisfast.engine.interface import Runtime
    from tisfast.engine.registry import Registry
    from tisfast.engine.response_cache import LocalStore
    from tisfast.native.nvml import GpuReading
    from tisfast.telemetry.gpu_meter import GpuMeter
    from tisfast.wire.head import Head

CONTENT_TYPE: Final = "text/plain; charset=utf-8"
_CACHED: Final = "(includes cached requests)"
_UNCACHED: Final = "(does not include cached requests)"
_PHASES: Final = (
    ("request", "success", f"Cumulative inference request duration in microseconds {_CACHED}"),
    ("queue", "queue", f"Cumulative inference queuing duration in microseconds {_CACHED}"),
    ("compute_input", "compute_input", f"Cumulative compute input duration in microseconds {_UNCACHED}"),
    ("compute_infer", "compute_infer", f"Cumulative compute inference duration in microseconds {_UNCACHED}"),
    ("compute_output", "compute_output", f"Cumulative inference compute output duration in microseconds {_UNCACHED}"),
)
"""Name in the metric, key of the statistics, help text."""

_SUMMARY_TEXTS: Final = {
    "request": f"Summary of inference request duration in microseconds {_CACHED}",
    "queue": f"Summary of inference queuing duration in microseconds {_CACHED}",
}
_GPU: Final = (
    ("nv_gpu_utilization", "GPU utilization rate [0.0 - 1.0)", "gauge", "utilization"),
    ("nv_gpu_memory_total_bytes", "GPU total memory, in bytes", "gauge", "memory_total_bytes"),
    ("nv_gpu_memory_used_bytes", "GPU used memory, in bytes", "gauge", "memory_used_bytes"),
    ("nv_gpu_power_usage", "GPU power usage in watts", "gauge", "power_watts"),
    ("nv_gpu_power_limit", "GPU power management limit in watts", "gauge", "power_limit_watts"),
    (
        "nv_energy_consumption",
        "GPU energy consumption in joules since the Triton Server started",
        "counter",
        "energy_joules",
    ),
)
_DURATIONS: Final = (
    ("request", "From the arrival of a request that succeeded to its answer, in seconds"),
    ("queue", "What such a request waited for an instance, in seconds"),
    ("compute", "What such a request spent in an instance, its input and output included, in seconds"),
)


_MEMORY: Final = (
    ("memory_bytes", "Memory of the workers of a model version at the last look, shared pages in proportion", "gauge"),
    ("asleep", "1 while a model version sleeps (--model-memory-budget)", "gauge"),
    ("sleeps", "Times that a model version was put to sleep", "counter"),
    ("wakes", "Times that it was woken by a request", "counter"),
    ("wake_seconds", "Seconds that the first requests waited for that, together", "counter"),
)


class PinnedPoolFace(Protocol):
    """The host memory that workers pin (processes/pinned_pool.py)."""

    @property
    def total_bytes(self) -> int:
        """What they may have."""

    @property
    def used_bytes(self) -> int:
        """What they have."""


class LentFace(Protocol):
    """GPU memory that the server lends to instances (processes/gpu_pool.py): of one GPU, by its number."""

    @property
    def gpu(self) -> int:
        """As instance groups count."""

    @property
    def lent(self) -> int:
        """Parts that instances have."""

    @property
    def free(self) -> int:
        """Parts that the server has taken from the GPU and nobody has."""

    @property
    def part_bytes(self) -> int:
        """Of one part."""


class GpuFace(Protocol):
    """How the server gets on with one GPU (native/cuda.py)."""

    @property
    def device(self) -> int:
        """As the driver counts, and clients."""

    @property
    def uuid(self) -> str:
        """As nvidia-smi has it, "" from a driver that tells none."""

    @property
    def losses(self) -> int:
        """Times that the server has lost it."""

    @property
    def is_lost(self) -> bool:
        """It has no new context since."""

    @property
    def is_unusable(self) -> bool:
        """It has never had one, and has tried."""

    @property
    def hangs(self) -> bool:
        """A call for it does not end."""


@dataclass(frozen=True)
class Sources:
    """Where values come from.  restarts, load_seconds: model, version and value of each loaded model version; cache:
    the server's, if it has one; memory: what the memory budget knows of each, by the names in _MEMORY; regions:
    clients' shared memory by its kind; used_gpus: those whose memory the server itself uses."""

    registry: Registry
    restarts: Callable[[], Iterable[tuple[str, str, int]]]
    load_seconds: Callable[[], Iterable[tuple[str, str, float]]] = tuple
    gpus: GpuMeter | None = None
    cache: LocalStore | SharedCacheFace | None = None
    custom: Callable[[], Iterable[FamilyReading]] = tuple
    memory: Callable[[], Iterable[tuple[str, str, Mapping[str, float]]]] = tuple
    pinned: PinnedPoolFace | None = None
    lent: Callable[[], Iterable[LentFace]] = tuple
    regions: Callable[[], Mapping[str, int]] = dict
    used_gpus: Callable[[], Iterable[GpuFace]] = tuple


class MetricsRoutes:
    """The handler of the metrics listener.  slice_seconds: of the event loop, before others have their turn."""

    def __init__(
        self,
        sources: Sources,
        shown: MetricsSettings,
        monotonic: Callable[[], float] = time.monotonic,
        slice_seconds: float = tuning.LOOP_SLICE_SECONDS,
    ) -> None:
        self._collector = MetricsCollector(sources, shown, monotonic)
        self._slice_seconds = slice_seconds

    def handle(self, head: Head, body: bytes) -> Response | Future[Response]:
        """The exposition."""
        if head.path not in ("/metrics", "/metrics/"):
            response = http_error(404, "Not Found")
        elif head.method != "GET":
            response = http_error(405, "Method Not Allowed")
        else:
            return in_slices(self._collector.pieces(), _exposition, self._slice_seconds)
        return response if head.method != "HEAD" else response._replace(body=b"")


def _exposition(pieces: list[str]) -> Response:
    return Response(200, CONTENT_TYPE, "".join(pieces).encode())


class MetricsCollector:
    """All families.  monotonic: seconds, for what is read at intervals."""

    def __init__(self, sources: Sources, shown: MetricsSettings, monotonic: Callable[[], float]) -> None:
        self._sources = sources
        self._shown = shown
        self._monotonic = monotonic
        self._windows = Windows()
        self._cache_summaries = CacheSummaries()
        self._cpu = CpuMeter()
        self._cpu_values: tuple[float, int, int] = (0.0, 0, 0)
        self._cpu_due = float("-inf")

    def pieces(self) -> Iterator[str]:
        """Prometheus text of everything; the families read what they show while they are asked for it."""
        return (piece for found in self.collect() for piece in found.pieces())

    def collect(self) -> Iterator[FamilyText]:
        """All families, in Triton's order."""
        runtimes = self._sources.registry.runtimes()
        yield from _counts(runtimes)
        if self._shown.counter_latencies:
            yield from _durations(runtimes)
            yield from per_model(runtimes)
        yield _pending(runtimes)
        yield from self._machine()
        yield from of_store(self._sources.cache)
        if self._shown.summary_latencies:
            yield from self._summaries(runtimes)
        if self._shown.histogram_latencies:
            yield metric_families.first_response_histogram(
                FIRST_RESPONSE,
                "Duration from request to first response in milliseconds",
                ((labels_of(r), r.timings.first_response) for r in runtimes),
            )
        yield self._load_durations(runtimes)
        yield from self._own(runtimes)
        for reading in self._sources.custom():
            yield metric_families.custom(reading)

    def _machine(self) -> Iterator[FamilyText]:
        pool = self._sources.pinned
        total, pinned = (pool.total_bytes, pool.used_bytes) if pool is not None else (0, 0)
        yield _gauge("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes", total)
        yield _gauge("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes", pinned)
        if self._sources.gpus is not None:
            yield from _gpus(self._sources.gpus.readings)
        if self._shown.cpu:
            used, memory_total, memory_used = self._look_at_cpu()
            yield _gauge("nv_cpu_utilization", "CPU utilization rate [0.0 - 1.0]", used)
            yield _gauge("nv_cpu_memory_total_bytes", "CPU total memory (RAM), in bytes", memory_total)
            yield _gauge("nv_cpu_memory_used_bytes", "CPU used memory (RAM), in bytes", memory_used)

    def _look_at_cpu(self) -> tuple[float, int, int]:
        """At most once per --metrics-interval-ms: two scrapers would otherwise shorten each other's time span."""
        now = self._monotonic()
        if now >= self._cpu_due:
            self._cpu_due = now + self._shown.interval_ms / 1000
            self._cpu_values = (self._cpu.utilization(), *memory_bytes())
        return self._cpu_values

    def _summaries(self, runtimes: list[Runtime]) -> Iterator[FamilyText]:
        shares = [share for share, _ in self._shown.quantiles]
        now = self._monotonic()
        self._windows.forget_others([runtime.timings for runtime in runtimes])
        quantiles = [self._windows.quantiles(runtime.timings, shares, now) for runtime in runtimes]
        for part, _, text in _PHASES:
            shown = [
                (labels_of(r), getattr(r.timings, part), dict(zip(map(_number, shares), found[part], strict=True)))
                for r, found in zip(runtimes, quantiles, strict=True)
                if part != "request" or r.cache is None
            ]
            if shown or not runtimes:
                yield metric_families.summary(f"nv_inference_{part}_summary_us", _SUMMARY_TEXTS.get(part, text), shown)
        yield from self._cache_summaries.collect(runtimes, {_number(share): share for share in shares}, now)

    def _load_durations(self, runtimes: list[Runtime]) -> FamilyText:
        labels = {(r.signature.identity, r.signature.version): labels_of(r) for r in runtimes}
        return family(
            "nv_model_load_duration_secs",
            "Model load time in seconds",
            "gauge",
            ((labels[m, v], seconds) for m, v, seconds in self._sources.load_seconds() if (m, v) in labels),
        )

    def _own(self, runtimes: list[Runtime]) -> Iterator[FamilyText]:
        yield family(
            "tisfast_worker_restarts",
            "Worker processes restarted after their death",
            "counter",
            ((self._untagged(m, v), count) for m, v, count in self._sources.restarts()),
            suffix="_total",
        )
        yield family(
            "tisfast_arena_bytes",
            "Shared memory of a model version: used by requests, their limit, resident of requests and of answers",
            "gauge",
            (sample for r in runtimes for sample in _arena(r)),
        )
        yield from self._memory()
        yield from self._lent()
        yield from self._used_gpus()
        yield from of_shared(self._sources.cache)
        yield metric_families.batch_sizes(runtimes)
        for part, text in _DURATIONS:
            shown = ((labels_of(r), getattr(r.timings, part)) for r in runtimes)
            yield metric_families.seconds_histogram(f"tisfast_{part}_duration_seconds", text, shown)

    def _lent(self) -> Iterator[FamilyText]:
        """Of clients' shared memory, and of GPUs that something was lent of."""
        regions = [({"kind": kind}, count) for kind, count in self._sources.regions().items()]
        yield family("tisfast_shared_memory_regions", "Registered regions of clients' shared memory", "gauge", regions)
        known = [(each, {"gpu": str(each.gpu)}) for each in self._sources.lent()]
        if known:
            parts = [
                ({**labels, "state": state}, count)
                for each, labels in known
                for state, count in (("lent", each.lent), ("free", each.free))
            ]
            nbytes = [(labels, each.lent * each.part_bytes) for each, labels in known]
            yield family("tisfast_gpu_lent_bytes", "GPU memory that the server lends to instances", "gauge", nbytes)
            yield family("tisfast_gpu_lent_parts", "Parts of it: lent, or free at the server", "gauge", parts)

    def _used_gpus(self) -> Iterator[FamilyText]:
        """Of GPUs that the server has made a call for: on a machine without any, and before that, nothing."""
        known = [(each, _gpu_labels(each)) for each in self._sources.used_gpus()]
        if known:
            losses = [(labels, each.losses) for each, labels in known]
            down = [
                ({**labels, "reason": reason}, int(is_so))
                for each, labels in known
                for reason, is_so in (("lost", each.is_lost), ("unusable", each.is_unusable), ("hangs", each.hangs))
            ]
            text = "Times that the server itself has lost a GPU"
            yield family("tisfast_gpu_losses", text, "counter", losses, suffix="_total")
            yield family("tisfast_gpu_down", "1 while the server cannot use a GPU's memory", "gauge", down)

    def _untagged(self, identity: str, version: str) -> Labels:
        """Labels of families that have no metric_tags."""
        namespace, name = self._sources.registry.split(identity)
        return {"model": name, "version": version, **({"namespace": namespace} if namespace else {})}

    def _memory(self) -> Iterator[FamilyText]:
        """Only of a server with --model-memory-budget."""
        known = list(self._sources.memory())
        for key, text, kind in _MEMORY if known else ():
            samples = ((self._untagged(m, v), figures[key]) for m, v, figures in known)
            yield family(f"tisfast_model_{key}", text, kind, samples, suffix="_total" if kind == "counter" else "")


def _gpu_labels(gpu: GpuFace) -> Labels:
    """CUDA's number, which log and regions have, and what the GPU's own families are labelled with."""
    return {"device_id": str(gpu.device), **({"gpu_uuid": gpu.uuid} if gpu.uuid else {})}


def _counts(runtimes: list[Runtime]) -> Iterator[FamilyText]:
    yield family(
        "nv_inference_request_success",
        "Number of successful inference requests, all batch sizes",
        "counter",
        ((labels_of(r), r.stats.inference_stats()["success"]["count"]) for r in runtimes),
    )
    yield family(
        "nv_inference_request_failure",
        "Number of failed inference requests, all batch sizes",
        "counter",
        (sample for r in runtimes for sample in _failures(r)),
    )
    yield family(
        "nv_inference_count",
        f"Number of inferences performed {_UNCACHED}",
        "counter",
        ((labels_of(r), r.stats.inference_count) for r in runtimes),
    )
    yield family(
        "nv_inference_exec_count",
        f"Number of model executions performed {_UNCACHED}",
        "counter",
        ((labels_of(r), r.stats.execution_count) for r in runtimes),
    )


def _durations(runtimes: list[Runtime]) -> Iterator[FamilyText]:
    for name, key, text in _PHASES:
        samples = ((labels_of(r), r.stats.inference_stats()[key]["ns"] // 1000) for r in runtimes)
        yield family(f"nv_inference_{name}_duration_us", text, "counter", samples)


def _pending(runtimes: list[Runtime]) -> FamilyText:
    return family(
        "nv_inference_pending_request_count",
        "Instantaneous number of pending requests awaiting execution per-model.",
        "gauge",
        ((labels_of(r), r.pending) for r in runtimes),
    )


def _gpus(readings: Iterable[GpuReading]) -> Iterator[FamilyText]:
    for name, text, kind, field in _GPU:
        values = [(reading.uuid, getattr(reading, field)) for reading in readings]
        samples = [({"gpu_uuid": uuid}, value) for uuid, value in values if value is not None]
        if samples:  # else no GPU tells it
            yield family(name, text, kind, samples)


def _gauge(name: str, text: str, value: float) -> FamilyText:
    return family(name, text, "gauge", [({}, value)])


def _number(share: float) -> str:
    return f"{share:g}"


def _failures(runtime: Runtime) -> Samples:
    stats = runtime.stats
    counts = {
        "REJECTED": stats.rejected,
        "CANCELED": stats.canceled,
        "BACKEND": stats.backend_failed,
        "OTHER": stats.other_failed,
    }
    return [({**labels_of(runtime), "reason": reason}, count) for reason, count in counts.items()]


def _arena(runtime: Runtime) -> Samples:
    arena = runtime.arena
    answers = sum(link.output.resident_bytes for link in runtime.links if link.output is not None)
    sizes = {
        "used": arena.used_bytes,
        "limit": arena.use_bytes_max,
        "resident": arena.resident_bytes,
        "output_resident": answers,
    }
    return [({**labels_of(runtime), "kind": kind}, value) for kind, value in sizes.items()]
