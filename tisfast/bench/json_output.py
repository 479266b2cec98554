"""JSON: perf_analyzer's profile export, and the run for `tisfast bench compare` and the page.  Layer 5 (bench)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import repeat
from typing import Any, Final

import numpy as np

from tisfast.bench.figures import client_parts, level_name, network_us, server_parts, supported, throughput
from tisfast.bench.histogram import Histogram
from tisfast.bench.results import FAILED, STAMP, Measurement, Records, Run, ServerSplit, Usage, Window
from tisfast.bench.statistics import quantile_interval
from tisfast.bench.tokens import Tokens

SCHEMA: Final = "tisfast-bench/1"
RECORDS_AT_ONCE: Final = 10_000
"""As texts: millions of them at one time would take gigabytes."""
SHOWN_FIELDS: Final = ["sent", "sequence_id", "responses", "first", "last"]
SHOWN: Final = (50, 75, 90, 95, 99, 99.9, 99.99)


def profile_export(run: Run, version: str) -> Iterator[str]:
    """perf_analyzer's file of each request, in pieces.  Times are ns since 1970.

    Each response of a decoupled model has its time, the empty one that ends a request, too; where there was no room for
    all of a request, it has the first and the last.  With OpenAI's endpoints all are there, with what came.
    """
    yield '{"experiments":['
    for number, level in enumerate(run.levels):
        closed = level_name(level) == "Concurrency"
        mode = "concurrency" if closed else "request_rate"
        value = int(level.level.value) if closed else float(level.level.value)
        if level.level.mode == "periodic":
            value = 1  # as perf_analyzer has it, whatever the range
        head = json.dumps({"mode": mode, "value": value}, separators=(",", ":"))
        yield f'{"," if number else ""}{{"experiment":{head},"requests":['
        yield from _requests(run, level) if level.tokens is None else _answers(run, level, level.tokens)
        shift = level.began_realtime_ns - level.began_ns
        yield f'],"window_boundaries":[{level.began_ns + shift},{level.ended_ns + shift}]}}'
    endpoint = run.target.endpoint
    tail = {"version": version, "service_kind": "openai" if endpoint else "triton", "endpoint": endpoint}
    yield "]," + json.dumps(tail, separators=(",", ":"))[1:]


def _requests(run: Run, level: Measurement) -> Iterator[str]:
    """Of several models each request says whose it is, which perf_analyzer's schema does not have."""
    shift = level.began_realtime_ns - level.began_ns
    comma, responses = "", Responses(level.stamps)
    names = [f'"model":{json.dumps(name)},' for name in run.mixture.names] if run.mixture is not None else []
    for records in level.records:
        for at in range(0, len(records), RECORDS_AT_ONCE):
            piece = records[at : at + RECORDS_AT_ONCE]
            good = piece[(piece["flags"] & FAILED) == 0]
            whose = [names[each] for each in run.mixture.models[good["step"]]] if run.mixture else repeat("")
            parts = zip(good[SHOWN_FIELDS].tolist(), whose, responses.times_of(good["serial"]), strict=False)
            rows = [_request(*each, shift) for each in parts]
            if rows:
                yield comma + ",".join(rows)
                comma = ","


def _answers(run: Run, level: Measurement, tokens: Tokens) -> Iterator[str]:
    """Inputs and outputs as perf_analyzer names them: `payload`, and for each event, or for the body, `response`."""
    shift = level.began_realtime_ns - level.began_ns
    for number, kept in enumerate(tokens.kept):
        request = {
            "timestamp": kept.sent_ns + shift,
            "request_inputs": {"payload": run.payloads[kept.step].decode("utf-8", "replace")},
            "response_timestamps": [each + shift for each in kept.times_ns],
            "response_outputs": [{"response": each.decode("utf-8", "replace")} for each in kept.contents],
        }
        yield ("," if number else "") + json.dumps(request, separators=(",", ":"))


class Responses:
    """When the responses of decoupled models came, by request."""

    def __init__(self, stamps: Sequence[Records]) -> None:
        found = np.concatenate(stamps) if stamps else np.empty(0, STAMP)
        order = np.argsort(found["serial"], kind="stable")
        self._serials, self._ns = found["serial"][order], found["ns"][order]

    def times_of(self, serials: np.ndarray[Any, np.dtype[np.uint32]]) -> Iterator[list[int]]:
        """Of each of these requests, in order; those that were kept."""
        ends = (np.searchsorted(self._serials, serials, side) for side in ("left", "right"))
        for low, high in zip(*ends, strict=True):
            yield self._ns[low:high].tolist()


def _request(row: tuple[int, int, int, int, int], model: str, times: list[int], shift: int) -> str:
    sent, sequence_id, responses, first, last = row
    sequence = f'"sequence_id":{sequence_id},' if sequence_id else ""
    if not times or times[0] != first or times[-1] != last:  # some of them are not there
        times = [first, last] if responses > 1 else [last]
    shown = ",".join(str(each + shift) for each in times)
    return f'{{"timestamp":{sent + shift},{sequence}{model}"response_timestamps":[{shown}]}}'


def document(run: Run) -> dict[str, Any]:
    """All of a run but its single requests.  Durations are in µs, where the name does not say otherwise."""
    return {
        "schema": SCHEMA,
        "target": asdict(run.target),
        "settings": asdict(run.settings),
        "arguments": list(run.arguments),
        "held": dict(run.held),
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
        "windows_before": level.windows_before,
        "stable": level.stable,
        "reason": level.reason,
        "notes": list(level.notes),
        "latency_from": "intended time" if level.open_loop else "sending",
        "requests": level.requests,
        "completed": level.completed,
        "responses": level.responses,
        "delayed": level.delayed,
        "unsent": level.unsent,
        "sequences": level.sequences,
        "throughput": throughput(level, run.target.batch_size),
        "sent_bytes": level.sent_bytes,
        "received_bytes": level.received_bytes,
        "errors": {
            "count": level.errors.count,
            "measured": level.errors.measured,
            "warm_up": level.errors.warm_up,
            "by_text": [[status, text, count] for (status, text), count in level.errors.by_text.items()],
            "first": list(level.errors.first) if level.errors.first else None,
        },
        "response_time": _latency(level.response, [each.latency for each in level.windows]),
        "service_time": _latency(level.service),
        "first_byte": _latency(level.first_byte),
        "client": {
            "send_us": parts.send,
            "receive_us": parts.receive,
            "wait_us": parts.wait,
            "cpu_share": cost.cpu_ns / cost.wall_ns if cost.wall_ns else 0.0,
            "busy_share": cost.busy_ns / cost.wall_ns if cost.wall_ns else 0.0,
            "gil_share": cost.gil_ns / cost.wall_ns if cost.wall_ns else 0.0,
            "runqueue_share": cost.runqueue_ns / cost.wall_ns if cost.wall_ns else 0.0,
            "lateness": _latency(cost.lateness),
            "limited": cost.limited,
            "most_requests_per_second": level.most_requests,
        },
        "server": None if level.server is None else _server(level.server) | {"network_us": network_us(level)},
        "gpus": {uuid: dict(values) for uuid, values in level.gpus.items()},
        "windows": [_window(each, level.began_ns) for each in level.windows],
        "tokens": None if level.tokens is None else _tokens(level, level.tokens),
        "models": {name: _level(run, model) for name, model in level.models.items()},
    }


def _tokens(level: Measurement, tokens: Tokens) -> dict[str, Any]:
    return {
        "requests": tokens.requests,
        "streams": tokens.streams,
        "output": tokens.output,
        "input": tokens.input,
        "output_per_second": tokens.output / level.seconds if level.seconds else 0.0,
        "told_by_usage": tokens.told,
        "counted_by_events": tokens.guessed,
        "time_to_first_token": _latency(tokens.first_token),
        "inter_token_latency": _latency(tokens.inter_token),
        "inter_event_gap": _latency(tokens.gap),
    }


def _window(window: Window, began_ns: int) -> dict[str, Any]:
    latency = window.latency
    return {
        "began_seconds": (window.began_ns - began_ns) / 1e9,
        "seconds": (window.ended_ns - window.began_ns) / 1e9,
        "responses": window.responses,
        "mean_us": latency.mean / 1000 if latency.count else None,
        "histogram": base64.b64encode(window.packed).decode(),
    }


def _latency(histogram: Histogram, pieces: Sequence[Histogram] | None = None) -> dict[str, Any]:
    """pieces: of time, for the intervals of the percentiles."""
    found: dict[str, Any] = {
        "count": histogram.count,
        "mean_us": histogram.mean / 1000 if histogram.count else None,
        "deviation_us": histogram.deviation / 1000,
        "minimum_us": histogram.minimum / 1000,
        "maximum_us": histogram.maximum / 1000,
        "percentiles_us": {
            f"{each:g}": histogram.quantile(each / 100) / 1000 if supported(histogram, each) else None for each in SHOWN
        },
        "histogram": _packed(histogram),
    }
    if pieces is not None:
        found["intervals_us"] = {
            f"{each:g}": _interval(histogram, each, pieces) for each in SHOWN if supported(histogram, each)
        }
    return found


def _interval(histogram: Histogram, percent: float, pieces: Sequence[Histogram]) -> list[float | None]:
    found = quantile_interval(histogram, percent / 100, pieces)
    return [found.low / 1000, None if found.high is None else found.high / 1000]


def _packed(histogram: Histogram) -> str:
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
        "usage": None if split.usage is None else _usage(split.usage),
        "composing": {key: _server(inner) for key, inner in split.composing.items()},
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "pid": usage.pid,
        "name": usage.name,
        "processes": usage.processes,
        "cpu_cores": usage.cores,
        "memory_bytes": usage.memory_bytes,
        "gpus": {uuid: asdict(use) for uuid, use in usage.gpus_in_use.items()},
    }


def document_text(run: Run) -> str:
    """The document as a file."""
    return json.dumps(document(run), separators=(",", ":"), allow_nan=False) + "\n"
