"""Metric families of one scrape, as text.  Layer 4 (telemetry).

The samples of a family are made one after the other as they are asked for: a scrape of many models can stop
at each one and let others have the event loop (operations/slices.py).  All lines of one histogram are made at
once, so that they agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from tisfast import limits

if TYPE_CHECKING:
    from tisfast.engine.custom_metrics import FamilyReading
    from tisfast.engine.histogram import FirstResponse, Histogram
    from tisfast.engine.interface import Runtime

Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]

LEAST_POWER: Final = 5
MOST_POWER: Final = 26
"""Buckets of tisfast's own histograms: 32 us, doubling up to 67 s; powers of two are exact (engine/histogram)."""
GO_EXPONENT_MIN: Final = 1e6
"""From here on Go, and with it whoever reads expositions, is used to an exponent."""


class FamilyText(NamedTuple):
    """A family: its head and its samples, each with its lines."""

    name: str
    text: str
    kind: str
    lines: Iterable[str]

    def pieces(self) -> Iterator[str]:
        """The head, then each sample."""
        text = self.text.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {self.name} {text}\n# TYPE {self.name} {self.kind}\n"
        yield from self.lines


def family(name: str, text: str, kind: str, samples: Samples, suffix: str = "") -> FamilyText:
    """One family; suffix: of its own name and its samples'."""
    name += suffix
    return FamilyText(name, text, kind, (_line(name, labels, value) for labels, value in samples))


def _line(name: str, labels: Labels, value: float) -> str:
    return f"{name}{_text(tuple(labels.items()))} {_number(value)}\n"


@lru_cache(limits.LABELS_REMEMBERED_MAX)
def _text(labels: tuple[tuple[str, str], ...]) -> str:
    """In the order of their names."""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in sorted(labels))
    return f"{{{','.join(pairs)}}}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    value = float(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    text = repr(value)
    if value < GO_EXPONENT_MIN or "e" in text:
        return text
    whole, _, part = text.partition(".")
    digits = (whole + part).rstrip("0")
    return f"{digits[0]}.{digits[1:]}".rstrip(".") + f"e+{len(whole) - 1:02d}"


def labels_of(runtime: Runtime) -> Labels:
    """Model and version, and the configuration's metric_tags as _TAG; its namespace where it has one."""
    tags = {f"_{tag}": value for tag, value in (runtime.config.get("metric_tags") or {}).items()}
    signature = runtime.signature
    namespace = {"namespace": signature.namespace} if signature.namespace else {}
    return {"model": signature.name, "version": signature.version, **namespace, **tags}


def summary(name: str, text: str, shown: Iterable[tuple[Labels, Histogram, dict[str, float]]]) -> FamilyText:
    """Microseconds as a summary.  shown: labels, histogram, and quantiles by their label."""
    return FamilyText(name, text, "summary", _summary_lines(name, shown))


def _summary_lines(name: str, shown: Iterable[tuple[Labels, Histogram, dict[str, float]]]) -> Iterator[str]:
    for labels, histogram, quantiles in shown:
        lines = [
            _line(f"{name}_count", labels, histogram.count),
            _line(f"{name}_sum", labels, histogram.total_ns // 1000),
        ]
        lines += [_line(name, {**labels, "quantile": quantile}, value) for quantile, value in quantiles.items()]
        yield "".join(lines)


def seconds_histogram(name: str, text: str, shown: Iterable[tuple[Labels, Histogram]]) -> FamilyText:
    """Durations in seconds, in buckets that double."""
    return FamilyText(name, text, "histogram", _seconds_lines(name, shown))


def _seconds_lines(name: str, shown: Iterable[tuple[Labels, Histogram]]) -> Iterator[str]:
    for labels, histogram in shown:
        before, after = _around_bound(labels)
        start = f"{name}_bucket{before}"
        lines = [
            f"{start}{(1 << power) / 1e6!r}{after}{_number(histogram.below(power))}\n"
            for power in range(LEAST_POWER, MOST_POWER + 1)
        ]
        yield "".join(lines) + _closing(name, labels, histogram.count, histogram.total_ns / 1e9)


def _around_bound(labels: Labels) -> tuple[str, str]:
    """The labels of a bucket before its bound and behind it."""
    before, _, after = _text((*labels.items(), ("le", "\0"))).partition("\0")
    return before, f"{after} "


def first_response_histogram(name: str, text: str, shown: Iterable[tuple[Labels, FirstResponse]]) -> FamilyText:
    """Milliseconds to the first response of a decoupled model, in the buckets that its configuration names."""
    return FamilyText(name, text, "histogram", _first_response_lines(name, shown))


def _first_response_lines(name: str, shown: Iterable[tuple[Labels, FirstResponse]]) -> Iterator[str]:
    for labels, histogram in shown:
        *bounded, count = histogram.cumulative()
        lines = [
            _line(f"{name}_bucket", {**labels, "le": f"{bound:g}"}, value)
            for bound, value in zip(histogram.bounds_ms, bounded, strict=True)
        ]
        yield "".join(lines) + _closing(name, labels, count, histogram.total_ns / 1e6)


def batch_sizes(runtimes: Iterable[Runtime]) -> FamilyText:
    """Inferences per execution; buckets are powers of two up to each model's largest batch."""
    name = "tisfast_batch_size"
    lines = (_batch_lines(name, runtime) for runtime in runtimes)
    return FamilyText(name, "Inferences per execution", "histogram", lines)


def _batch_lines(name: str, runtime: Runtime) -> str:
    executions = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in runtime.stats.batches()}
    largest = max(runtime.signature.max_batch_size, 1)
    labels = labels_of(runtime)
    text = ""
    for bound in (1 << power for power in range((largest - 1).bit_length() + 1)):
        count = sum(n for size, n in executions.items() if size <= bound)
        text += _line(f"{name}_bucket", {**labels, "le": f"{bound}.0"}, count)
    return text + _closing(name, labels, sum(executions.values()), sum(size * n for size, n in executions.items()))


def custom(reading: FamilyReading) -> FamilyText:
    """A family that models keep."""
    return FamilyText(reading.name, reading.text, reading.kind, _custom_lines(reading))


def _custom_lines(reading: FamilyReading) -> Iterator[str]:
    for metric in reading.metrics:
        labels = dict(metric.labels)
        if reading.kind != "histogram":
            yield _line(reading.name, labels, metric.value)
            continue
        text, count = "", 0.0
        for bound, more in zip(metric.bounds, metric.counts, strict=False):
            count += more
            text += _line(f"{reading.name}_bucket", {**labels, "le": repr(bound).removesuffix(".0")}, count)
        yield text + _closing(reading.name, labels, sum(metric.counts), metric.value)


def _closing(name: str, labels: Labels, count: float, total: float) -> str:
    return "".join(
        (
            _line(f"{name}_bucket", {**labels, "le": "+Inf"}, count),
            _line(f"{name}_count", labels, count),
            _line(f"{name}_sum", labels, total),
        )
    )
