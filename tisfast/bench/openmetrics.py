"""The figures of a run in OpenMetrics' text form, which Prometheus and its tools read.  Layer 5 (bench).

https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tisfast.bench.figures import supported, throughput
from tisfast.bench.histogram import Histogram
from tisfast.bench.results import Measurement, Run, ServerSplit
from tisfast.bench.tokens import Tokens

QUANTILES: Final = (50, 75, 90, 95, 99, 99.9, 99.99)
BUCKETS_US: Final = tuple(digit * 10**power for power in range(1, 8) for digit in (1, 2, 5))
"""Upper ends of the histogram's buckets: 10 µs to 50 s."""
PARTS: Final = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""What is appended to the family's name, and the value with its labels."""


class Family(NamedTuple):
    """One metric.  samples: of one level."""

    name: str
    kind: str
    text: str
    samples: Callable[[Run, Measurement], Iterable[Sample]]


def openmetrics(run: Run) -> Iterator[str]:
    """A file, in lines."""
    target = run.target
    shared = {"model": target.model, "version": target.version, "protocol": target.protocol, "url": target.url}
    yield from _head("tisfast_bench_target", "info", "What was measured.")
    yield _line("tisfast_bench_target_info", {**shared, "server": run.server_version}, 1)
    for family in FAMILIES:
        yield from _head(family.name, family.kind, family.text)
        for level in run.levels:
            labels = {**shared, "mode": level.level.mode, "load": f"{level.level.value:g}"}
            for suffix, more, value in family.samples(run, level):
                yield _line(family.name + suffix, {**labels, **more}, value)
    yield "# EOF\n"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}\n"
    if name.endswith("_seconds"):
        yield f"# UNIT {name} seconds\n"
    yield f"# HELP {name} {text}\n"


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {value!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _one(value: Callable[[Run, Measurement], float], suffix: str = "") -> Callable[[Run, Measurement], list[Sample]]:
    return lambda run, level: [(suffix, {}, value(run, level))]


def _summary(pick: Callable[[Measurement], Histogram | None]) -> Callable[[Run, Measurement], Iterator[Sample]]:
    def samples(_: Run, level: Measurement) -> Iterator[Sample]:
        found = pick(level)
        if found is None:
            return
        for percent in QUANTILES:
            if supported(found, percent):  # else too few requests tell it
                yield "", {"quantile": f"{percent / 100:g}"}, found.quantile(percent / 100) / 1e9
        yield "_count", {}, found.count
        yield "_sum", {}, found.sum / 1e9

    return samples


def _buckets(_: Run, level: Measurement) -> Iterator[Sample]:
    found = level.response
    for end in BUCKETS_US:
        yield "_bucket", {"le": f"{end / 1e6:g}"}, found.count - found.above(end * 1000)
    yield "_bucket", {"le": "+Inf"}, found.count
    yield "_count", {}, found.count
    yield "_sum", {}, found.sum / 1e9


def _of_server(values: Callable[[ServerSplit], Iterable[Sample]]) -> Callable[[Run, Measurement], Iterable[Sample]]:
    """Nothing where the server tells nothing."""
    return lambda _, level: () if level.server is None else values(level.server)


def _of_gpus(split: ServerSplit, name: str) -> Iterator[Sample]:
    for uuid, use in split.usage.gpus_in_use.items() if split.usage is not None else ():
        value = getattr(use, name)
        if value is not None:
            yield "", {"gpu": uuid}, value


def _errors(_: Run, level: Measurement) -> Iterator[Sample]:
    by_status: dict[str, int] = {}
    for (status, _text), count in level.errors.by_text.items():
        by_status[status] = by_status.get(status, 0) + count
    for status, count in sorted(by_status.items()):
        yield "_total", {"status": status}, count


def _of_tokens(pick: Callable[[Tokens], Histogram]) -> Callable[[Run, Measurement], Iterator[Sample]]:
    """Nothing where no tokens were generated."""
    return _summary(lambda level: None if level.tokens is None else pick(level.tokens))


def _tokens(_: Run, level: Measurement) -> Iterator[Sample]:
    if level.tokens is not None:
        yield "_total", {"direction": "output"}, level.tokens.output
        yield "_total", {"direction": "input"}, level.tokens.input


def _of_models(
    samples: Callable[[Run, Measurement], Iterable[Sample]],
) -> Callable[[Run, Measurement], Iterator[Sample]]:
    """Of each of several models, with its name."""

    def found(run: Run, level: Measurement) -> Iterator[Sample]:
        for name, model in level.models.items():
            for suffix, more, value in samples(run, model):
                yield suffix, {**more, "part": name}, value

    return found


FAMILIES: Final = (
    Family(
        "tisfast_bench_throughput",
        "gauge",
        "Inferences a second: answers times the batch size.",
        _one(lambda run, level: throughput(level, run.target.batch_size)),
    ),
    Family(
        "tisfast_bench_requests",
        "counter",
        "Requests that were answered well in the measured time.",
        _one(lambda _, level: level.completed, "_total"),
    ),
    Family("tisfast_bench_failed_requests", "counter", "Requests that failed, in the whole level.", _errors),
    Family("tisfast_bench_measured_seconds", "gauge", "How long was measured.", _one(lambda _, level: level.seconds)),
    Family(
        "tisfast_bench_latency_seconds",
        "summary",
        "Latency; at a rate from the intended time.",
        _summary(lambda level: level.response),
    ),
    Family("tisfast_bench_latency_distribution_seconds", "histogram", "The same latency, in buckets.", _buckets),
    Family(
        "tisfast_bench_service_time_seconds",
        "summary",
        "From the real sending to the end of the answer.",
        _summary(lambda level: level.service),
    ),
    Family(
        "tisfast_bench_first_byte_seconds",
        "summary",
        "From the real sending to the first byte of the answer.",
        _summary(lambda level: level.first_byte),
    ),
    Family("tisfast_bench_tokens", "counter", "Tokens of answers that ended well (OpenAI's endpoints).", _tokens),
    Family(
        "tisfast_bench_first_token_seconds",
        "summary",
        "Until the first event with content; at a rate from the intended time.",
        _of_tokens(lambda tokens: tokens.first_token),
    ),
    Family(
        "tisfast_bench_inter_token_seconds",
        "summary",
        "A request's average time from one output token to the next.",
        _of_tokens(lambda tokens: tokens.inter_token),
    ),
    Family(
        "tisfast_bench_inter_event_seconds",
        "summary",
        "From one event with content to the next, each.",
        _of_tokens(lambda tokens: tokens.gap),
    ),
    Family(
        "tisfast_bench_model_requests",
        "counter",
        "Of each of several models: requests that were answered well.",
        _of_models(_one(lambda _, level: level.completed, "_total")),
    ),
    Family(
        "tisfast_bench_model_failed_requests",
        "counter",
        "Of each of several models: requests that failed.",
        _of_models(_errors),
    ),
    Family(
        "tisfast_bench_model_latency_seconds",
        "summary",
        "Of each of several models: latency.",
        _of_models(_summary(lambda level: level.response)),
    ),
    Family(
        "tisfast_bench_server_requests",
        "counter",
        "Requests that the server has counted in the same time.",
        _of_server(lambda split: [("_total", {}, split.success_count)]),
    ),
    Family(
        "tisfast_bench_server_executions",
        "counter",
        "Executions that the server has counted; fewer than requests where it batched.",
        _of_server(lambda split: [("_total", {}, split.execution_count)]),
    ),
    Family(
        "tisfast_bench_server_seconds",
        "counter",
        "Sums of the server's parts of all requests.",
        _of_server(lambda split: [("_total", {"part": part}, getattr(split, f"{part}_ns") / 1e9) for part in PARTS]),
    ),
    Family(
        "tisfast_bench_server_busy_cores",
        "gauge",
        "Cores that the server's processes kept busy, where they are on this machine.",
        _of_server(lambda split: [] if split.usage is None else [("", {}, split.usage.cores)]),
    ),
    Family(
        "tisfast_bench_server_memory_bytes",
        "gauge",
        "Proportional set size of the server's processes, where they are on this machine.",
        _of_server(lambda split: [] if split.usage is None else [("", {}, split.usage.memory_bytes)]),
    ),
    Family(
        "tisfast_bench_server_gpu_memory_bytes",
        "gauge",
        "Memory of a GPU that the server's processes have, where they are on this machine.",
        _of_server(lambda split: _of_gpus(split, "memory_bytes")),
    ),
    Family(
        "tisfast_bench_server_gpu_utilization_ratio",
        "gauge",
        "Share of the time in which a GPU of the server's was busy.",
        _of_server(lambda split: _of_gpus(split, "utilization")),
    ),
    Family(
        "tisfast_bench_server_gpu_watts",
        "gauge",
        "Power of a GPU of the server's.",
        _of_server(lambda split: _of_gpus(split, "power_watts")),
    ),
    Family(
        "tisfast_bench_client_busy_ratio",
        "gauge",
        "Share of the time in which the client's thread worked; near 1 the client is the limit.",
        _one(lambda _, level: level.client.busy_ns / max(level.client.wall_ns, 1)),
    ),
    Family(
        "tisfast_bench_client_most_requests_per_second",
        "gauge",
        "Requests a second that the client itself can do (--calibrate).",
        lambda _, level: [("", {}, level.most_requests)] if level.most_requests else (),
    ),
    Family(
        "tisfast_bench_stable", "gauge", "1: the level ended as it should.", _one(lambda _, level: int(level.stable))
    ),
)
