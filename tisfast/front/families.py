"""Metric families of one scrape, in prometheus_client's terms.  Layer 4 (front).

prometheus_client takes 60 ms to import and is needed only by who is scraped, so it is imported at the first scrape.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from tisfast.engine.custom_metrics import FamilyReading
    from tisfast.engine.histogram import FirstResponse, Histogram
    from tisfast.engine.served import Runtime

Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]

LEAST_POWER: Final = 5
MOST_POWER: Final = 26
"""Buckets of tisfast's own histograms: 32 us, doubling up to 67 s; powers of two are exact (engine/histogram)."""


def family(name: str, text: str, kind: str, samples: Samples, suffix: str = "") -> Metric:
    """One family; suffix: of the samples' names."""
    from prometheus_client.core import Metric  # noqa: PLC0415 (60 ms)

    found = Metric(name, text, kind)
    for labels, value in samples:
        found.add_sample(name + suffix, labels, value)
    return found


def labels_of(runtime: Runtime) -> Labels:
    """Row 21.03: model and version, and the configuration's metric_tags as _TAG; its namespace where it has one."""
    tags = {f"_{tag}": value for tag, value in (runtime.config.get("metric_tags") or {}).items()}
    signature = runtime.signature
    namespace = {"namespace": signature.namespace} if signature.namespace else {}
    return {"model": signature.name, "version": signature.version, **namespace, **tags}


def summary(name: str, text: str, shown: Iterable[tuple[Labels, Histogram, dict[str, float]]]) -> Metric:
    """Microseconds as a summary.  shown: labels, histogram, and quantiles by their label."""
    found = family(name, text, "summary", ())
    for labels, histogram, quantiles in shown:
        found.add_sample(f"{name}_count", labels, histogram.count)
        found.add_sample(f"{name}_sum", labels, histogram.total_ns // 1000)
        for quantile, microseconds in quantiles.items():
            found.add_sample(name, {**labels, "quantile": quantile}, microseconds)
    return found


def seconds_histogram(name: str, text: str, shown: Iterable[tuple[Labels, Histogram]]) -> Metric:
    """Durations in seconds, in buckets that double."""
    found = family(name, text, "histogram", ())
    for labels, histogram in shown:
        for power in range(LEAST_POWER, MOST_POWER + 1):
            bound = repr((1 << power) / 1e6)
            found.add_sample(f"{name}_bucket", {**labels, "le": bound}, histogram.below(power))
        _close(found, name, labels, histogram.count, histogram.total_ns / 1e9)
    return found


def first_response_histogram(name: str, text: str, shown: Iterable[tuple[Labels, FirstResponse]]) -> Metric:
    """Row 21.14."""
    found = family(name, text, "histogram", ())
    for labels, histogram in shown:
        *bounded, count = histogram.cumulative()
        for bound, value in zip(histogram.bounds_ms, bounded, strict=True):
            found.add_sample(f"{name}_bucket", {**labels, "le": f"{bound:g}"}, value)
        _close(found, name, labels, count, histogram.total_ns / 1e6)
    return found


def batch_sizes(runtimes: list[Runtime]) -> Metric:
    """Inferences per execution; buckets are powers of two up to each model's largest batch."""
    name = "tisfast_batch_size"
    found = family(name, "Inferences per execution", "histogram", ())
    for runtime in runtimes:
        executions = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in runtime.stats.batches()}
        largest = max(runtime.signature.max_batch_size, 1)
        labels = labels_of(runtime)
        for bound in (1 << power for power in range((largest - 1).bit_length() + 1)):
            count = sum(n for size, n in executions.items() if size <= bound)
            found.add_sample(f"{name}_bucket", {**labels, "le": f"{bound}.0"}, count)
        total = sum(size * n for size, n in executions.items())
        _close(found, name, labels, sum(executions.values()), total)
    return found


def custom(reading: FamilyReading) -> Metric:
    """A family that models keep (row 21.20)."""
    found = family(reading.name, reading.text, reading.kind, ())
    for metric in reading.metrics:
        labels = dict(metric.labels)
        if reading.kind != "histogram":
            found.add_sample(reading.name, labels, metric.value)
            continue
        count = 0.0
        for bound, more in zip(metric.bounds, metric.counts, strict=False):
            count += more
            found.add_sample(f"{reading.name}_bucket", {**labels, "le": repr(bound).removesuffix(".0")}, count)
        _close(found, reading.name, labels, sum(metric.counts), metric.value)
    return found


def _close(found: Metric, name: str, labels: Labels, count: float, total: float) -> None:
    found.add_sample(f"{name}_bucket", {**labels, "le": "+Inf"}, count)
    found.add_sample(f"{name}_count", labels, count)
    found.add_sample(f"{name}_sum", labels, total)
