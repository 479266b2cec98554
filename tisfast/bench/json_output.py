"""JSON: perf_analyzer's profile export, and the run for `tisfast bench compare` and the page.  Layer 5 (bench)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from tisfast.bench.figures import client_parts, level_name, network_us, server_parts, supported, throughput
from tisfast.bench.histogram import Histogram
from tisfast.bench.results import FAILED, Measurement, Run, ServerSplit
from tisfast.bench.results import Histogram as AnyHistogram
from tisfast.bench.statistics import quantile_interval

SCHEMA: Final = "tisfast-bench/1"
SHOWN: Final = (50, 75, 90, 95, 99, 99.9, 99.99)


def profile_export(run: Run, version: str) -> Iterator[str]:
    """perf_analyzer's file of each request, in pieces.  Times are ns since 1970.

    A request of several responses has the first and the last one's time: those between are not kept.
    """
    yield '{"experiments":['
    for number, level in enumerate(run.levels):
        closed = level_name(level) == "Concurrency"
        mode = "concurrency" if closed else "request_rate"
        value = int(level.level.value) if closed else float(level.level.value)
        head = json.dumps({"mode": mode, "value": value}, separators=(",", ":"))
        yield f'{"," if number else ""}{{"experiment":{head},"requests":['
        yield from _requests(level)
        shift = level.began_realtime_ns - level.began_ns
        yield f'],"window_boundaries":[{level.began_ns + shift},{level.ended_ns + shift}]}}'
    tail = {"version": version, "service_kind": "triton", "endpoint": ""}
    yield "]," + json.dumps(tail, separators=(",", ":"))[1:]


def _requests(level: Measurement) -> Iterator[str]:
    if level.records is None:
        return
    shift = level.began_realtime_ns - level.began_ns
    good = level.records[(level.records["flags"] & FAILED) == 0]
    first = True
    for record in good.tolist():
        row = dict(zip(good.dtype.names or (), record, strict=True))
        times = [row["last"] + shift]
        if row["responses"] > 1:
            times.insert(0, row["first"] + shift)
        one: dict[str, Any] = {"timestamp": row["sent"] + shift}
        if row["sequence_id"]:
            one["sequence_id"] = row["sequence_id"]
        one["response_timestamps"] = times
        yield ("" if first else ",") + json.dumps(one, separators=(",", ":"))
        first = False


def document(run: Run) -> dict[str, Any]:
    """All of a run but its single requests.  Durations are in µs, where the name does not say otherwise."""
    return {
        "schema": SCHEMA,
        "target": asdict(run.target),
        "settings": asdict(run.settings),
        "arguments": list(run.arguments),
        "machine": dict(run.machine),
        "server_version": run.server_version,
        "levels": [_level(run, level) for level in run.levels],
    }


def _level(run: Run, level: Measurement) -> dict[str, Any]:
    parts = client_parts(level)
    cost = level.client
    return {
        "mode": level.level.mode,
        "value": level.level.value,
        "began_unix_ns": level.began_realtime_ns,
        "seconds": level.seconds,
        "warm_up_seconds": level.warm_up_ns / 1e9,
        "stable": level.stable,
        "reason": level.reason,
        "requests": level.requests,
        "completed": level.completed,
        "responses": level.responses,
        "delayed": level.delayed,
        "sequences": level.sequences,
        "throughput": throughput(level, run.target.batch_size),
        "sent_bytes": level.sent_bytes,
        "received_bytes": level.received_bytes,
        "errors": {
            "count": level.errors.count,
            "by_text": [[status, text, count] for (status, text), count in level.errors.by_text.items()],
            "first": list(level.errors.first) if level.errors.first else None,
        },
        "response_time": _latency(level.response, level),
        "service_time": _latency(level.service, None),
        "first_byte": _latency(level.first_byte, None),
        "client": {
            "send_us": parts.send,
            "receive_us": parts.receive,
            "wait_us": parts.wait,
            "cpu_share": cost.cpu_ns / cost.wall_ns if cost.wall_ns else 0.0,
            "busy_share": cost.busy_ns / cost.wall_ns if cost.wall_ns else 0.0,
            "runqueue_share": cost.runqueue_ns / cost.wall_ns if cost.wall_ns else 0.0,
            "lateness": _latency(cost.lateness, None),
            "limited": cost.limited,
        },
        "server": None if level.server is None else _server(level.server) | {"network_us": network_us(level)},
        "gpus": {uuid: dict(values) for uuid, values in level.gpus.items()},
        "windows": [
            {
                "began_seconds": (each.began_ns - level.began_ns) / 1e9,
                "seconds": (each.ended_ns - each.began_ns) / 1e9,
                "responses": each.responses,
                "mean_us": each.latency.sum / each.latency.count / 1000 if each.latency.count else None,
                "histogram": _packed(each.latency),
            }
            for each in level.windows
        ],
    }


def _latency(histogram: AnyHistogram, level: Measurement | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "count": histogram.count,
        "mean_us": histogram.sum / histogram.count / 1000 if histogram.count else None,
        "deviation_us": histogram.deviation / 1000,
        "minimum_us": histogram.minimum / 1000,
        "maximum_us": histogram.maximum / 1000,
        "percentiles_us": {
            f"{each:g}": histogram.quantile(each / 100) / 1000 if supported(histogram, each) else None for each in SHOWN
        },
        "histogram": _packed(histogram),
    }
    if level is not None:
        found["intervals_us"] = {
            f"{each:g}": _interval(histogram, each, level) for each in SHOWN if supported(histogram, each)
        }
    return found


def _interval(histogram: AnyHistogram, percent: float, level: Measurement) -> list[float | None]:
    found = quantile_interval(histogram, percent / 100, level.windows)
    return [found.low / 1000, None if found.high is None else found.high / 1000]


def _packed(histogram: AnyHistogram) -> str:
    return base64.b64encode(histogram.to_bytes()).decode()


def unpacked(text: str) -> Histogram:
    """A histogram of the document.  ValueError where it is none."""
    return Histogram.from_bytes(base64.b64decode(text, validate=True))


def _server(split: ServerSplit) -> dict[str, Any]:
    parts = server_parts(split)
    return {
        "model": split.model,
        "version": split.version,
        "inference_count": split.inference_count,
        "execution_count": split.execution_count,
        "success_count": split.success_count,
        "fail_count": split.fail_count,
        "cache_hit_count": split.cache_hit_count,
        "cache_miss_count": split.cache_miss_count,
        "batch_sizes": {str(size): count for size, count in sorted(split.batch_sizes.items())},
        **{f"{name}_us": value for name, value in parts._asdict().items()},
        "composing": {key: _server(inner) for key, inner in split.composing.items()},
    }


def document_text(run: Run) -> str:
    """The document as a file."""
    return json.dumps(document(run), separators=(",", ":"), allow_nan=False) + "\n"
