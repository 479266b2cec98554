"""What stands in the terminal: perf_analyzer's lines, then what it does not say.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tisfast.bench.client_side import BUSY_LIMIT
from tisfast.bench.figures import (
    average_us,
    cached,
    client_parts,
    counted_events,
    level_name,
    needed_for,
    percentile_us,
    percentiles_of,
    server_parts,
    supported,
    throughput,
    token_times,
)
from tisfast.bench.histogram import Histogram
from tisfast.bench.results import Measurement, Run, ServerSplit, Settings, Usage
from tisfast.bench.statistics import Interval, mean_interval, quantile_interval
from tisfast.bench.tokens import Tokens

ERRORS_SHOWN: Final = 5
GPUS_SHOWN: Final = 16
"""As perf_analyzer; more are in the CSV file."""
DELAYED_SHOWN: Final = 0.01
"""A share of late requests above it is worth a warning, as with perf_analyzer."""


def header(settings: Settings, batch_size: int, mode: str, decoupled: bool, *, kind: str = "triton") -> str:
    """What is said before the first level, with an empty line at its end."""
    lines = [f"Batch size: {batch_size}", f"Service Kind: {kind.upper()}"]
    if settings.warm_up_count:
        lines.append(f"Sending {settings.warm_up_count} warmup requests")
    if settings.alternated:
        lines.append(f"Alternating with a second server: {settings.trials} windows of each")
    if settings.request_count:
        lines.append(f"Sending {settings.request_count} benchmark requests")
    elif settings.alternated:
        lines.append(f"Measurement window: {settings.window_ms} msec")
    else:
        lines.append(f'Using "{settings.measurement_mode}" mode for stabilization')
        what = "average latency" if settings.percentile <= 0 else f"p{settings.percentile} latency"
        if settings.stop == "confidence":
            lines.append(f"Stopping when the {what} is known within {settings.stability_percent:g} %")
        else:
            lines.append(f"Stabilizing using {what} and throughput")
        if settings.measurement_mode == "time_windows":
            lines.append(f"Measurement window: {settings.window_ms} msec")
        else:
            lines.append(f"Minimum number of samples in each window: {settings.measurement_request_count}")
    lines += _limits(settings, mode)
    kind = "asynchronous" if settings.asynchronous else "synchronous"
    lines.append(f"Using {kind} calls for inference")
    if decoupled:
        lines.append("Detected decoupled model, using the last response for measuring latency")
    return "*** Measurement Settings ***\n" + "".join(f"  {line}\n" for line in lines) + "\n"


def _limits(settings: Settings, mode: str) -> Iterator[str]:
    several = settings.concurrency_end != 1 if mode == "concurrency" else settings.rate_end not in (0.0, 1.0)
    if several or settings.latency_threshold_ms:
        yield f"Latency limit: {settings.latency_threshold_ms} msec"
    if mode == "concurrency" and settings.concurrency_end > 1:
        yield f"Concurrency limit: {settings.concurrency_end} concurrent requests"
    if mode == "request_rate":
        if settings.rate_end > 1:
            yield f"Request Rate limit: {settings.rate_end:g} requests per seconds"
        kind = "poisson" if settings.distribution == "poisson" else "uniform"
        yield f"Using {kind} distribution on request generation"
    if settings.binary_search:
        yield "Using Binary Search algorithm"


def level_text(level: Measurement, settings: Settings, batch_size: int, protocol: str = "http") -> str:
    """All of one level."""
    if level_name(level) == "Concurrency":
        lines = [f"Request concurrency: {level.level.value:g}"]
    else:
        lines = [f"Request Rate: {level.level.value:g} inference requests per second"]
    lines.append("  Client: ")
    lines += [f"    {line}" for line in _client(level, settings, batch_size, protocol)]
    if level.server is not None:
        lines.append("  Server: ")
        lines += _server(level.server, "    ")
    for name, model in level.models.items():
        lines += ["", f"  Model {name}: "]
        lines += [f"    {line}" for line in _client(model, settings, batch_size, protocol)]
        if model.errors.count:
            lines.append(f"    Failed requests: {model.errors.measured} in the measured windows")
        lines += ["    Server: ", *_server(model.server, "      ")] if model.server is not None else []
    if level.gpus:
        lines += ["", "  Server Prometheus Metrics: ", *_gpus(level)]
    lines.append("  Trust: ")
    lines += [f"    {line}" for line in _trust(level, settings)]
    return "\n".join(lines) + "\n"


def _client(level: Measurement, settings: Settings, batch_size: int, protocol: str) -> Iterator[str]:
    parts = client_parts(level)
    yield f"Request count: {level.completed}"
    if level.requests and level.delayed > DELAYED_SHOWN * level.requests:
        yield f"Avg send request rate: {level.requests / level.seconds:.2f} infer/sec"
        yield (
            "[WARNING] Perf Analyzer was not able to keep up with the desired request rate. "
            f"{100 * level.delayed / level.requests:.2f}% of the requests were delayed. "
        )
    if level.sequences:
        yield f"Sequence count: {level.sequences} ({level.sequences / level.seconds:.2f} seq/sec)"
    yield f"Throughput: {throughput(level, batch_size):g} infer/sec"
    if level.responses != level.completed and level.seconds:
        yield f"Response Throughput: {level.responses / level.seconds:g} infer/sec"
    if level.open_loop:
        yield "Latencies count from the intended time of sending, service times from the sending itself:"
    yield from _times("latency", level.response, settings)
    if level.open_loop:
        yield from _times("service time", level.service, settings)
    if level.tokens is not None:
        yield from _tokens(level, level.tokens, settings)
    if protocol == "grpc":
        if settings.verbose:
            split = f"marshal {parts.send} usec + response wait {parts.wait} usec + unmarshal {parts.receive} usec"
        else:
            split = f"(un)marshal request/response {parts.send + parts.receive} usec + response wait {parts.wait} usec"
        yield f"Avg gRPC time: {parts.service} usec ({split})"
        return
    split = f"send/recv {parts.send + parts.receive} usec + response wait {parts.wait} usec"
    if settings.verbose:
        split = f"send {parts.send} usec + response wait {parts.wait} usec + receive {parts.receive} usec"
    yield f"Avg HTTP time: {parts.service} usec ({split})"


def _tokens(level: Measurement, tokens: Tokens, settings: Settings) -> Iterator[str]:
    if tokens.told or tokens.guessed:
        yield f"Output token throughput: {tokens.output / level.seconds:g} tokens/sec"
        yield f"Output tokens of a request: {tokens.output / tokens.requests:g}"
    if tokens.input:
        yield f"Input tokens of a request: {tokens.input / tokens.requests:g}"
    for name, histogram in token_times(tokens):
        if histogram.count:
            yield from _times(name, histogram, settings, "gaps" if histogram is tokens.gap else "requests")


def _times(name: str, histogram: Histogram, settings: Settings, of: str = "requests") -> Iterator[str]:
    if settings.percentile <= 0:
        average = average_us(histogram.sum, histogram.count)
        yield f"Avg {name}: {average} usec (standard deviation {histogram.deviation / 1000:.0f} usec)"
    for percent in percentiles_of(settings.percentile):
        yield f"p{percent} {name}: {_percentile(histogram, percent, of)}"


def _percentile(histogram: Histogram, percent: int, of: str) -> str:
    found = percentile_us(histogram, percent)
    if found is None:
        return f"- (of {histogram.count} {of}; it takes {needed_for(percent / 100)} to tell it)"
    return f"{found} usec"


def _server(split: ServerSplit, indent: str) -> list[str]:
    parts = server_parts(split)
    lines = [f"Inference count: {split.inference_count}", f"Execution count: {split.execution_count}"]
    if cached(split):
        lines += [f"Cache hit count: {split.cache_hit_count}", f"Cache miss count: {split.cache_miss_count}"]
    lines.append(f"Successful request count: {split.success_count}")
    total = f"Avg request latency: {parts.total} usec (overhead {parts.overhead} usec + queue {parts.queue} usec + "
    if split.composing:
        lines.append(f"{total}compute {parts.compute} usec)")
    elif cached(split):
        hit = average_us(split.cache_hit_ns + split.cache_miss_ns, split.cache_hit_count + split.cache_miss_count)
        lines.append(f"{total}cache hit/miss {hit} usec)")
        lines.append(f"Average Cache Hit Latency: {parts.cache_hit} usec")
        lines.append(f"Average Cache Miss Latency: {parts.cache_miss} usec")
    else:
        lines.append(
            f"{total}compute input {parts.compute_input} usec + compute infer {parts.compute_infer} usec + "
            f"compute output {parts.compute_output} usec)"
        )
    if split.usage is not None:
        lines += [_usage(split.usage), *_used_gpus(split.usage)]
    lines = [indent + line for line in lines]
    if split.composing:
        lines += ["", indent + "Composing models: "]
        for inner in split.composing.values():
            lines.append(f"{indent}{inner.model}, version: {inner.version}")
            lines += _server(inner, indent + "    ")
    return lines


def _usage(usage: Usage) -> str:
    memory = f", {usage.memory_bytes / 1e6:.1f} MB of memory" if usage.memory_bytes else ""
    many = f"{usage.processes} of " if usage.processes > 1 else ""
    return f"Processes: {usage.cores:.2f} cores busy{memory} ({many}{usage.name}, pid {usage.pid})"


def _used_gpus(usage: Usage) -> Iterator[str]:
    for uuid, use in list(usage.gpus_in_use.items())[:GPUS_SHOWN]:
        told = [
            *([] if use.utilization is None else [f"{100 * use.utilization:.0f} % busy"]),
            *([] if use.memory_bytes is None else [f"{use.memory_bytes / 1e6:.1f} MB of memory"]),
            *([] if use.power_watts is None else [f"{use.power_watts:.1f} W"]),
        ]
        whose = "all that is there, as NVML does not tell whose it is" if use.whole else "memory of these processes"
        yield f"{uuid}: {', '.join(told) or 'it tells nothing'} ({whose})"


def _gpus(level: Measurement) -> Iterator[str]:
    if len(level.gpus) > GPUS_SHOWN:
        yield f"    There are {len(level.gpus)} GPUs; their metrics are in the CSV file of -f with --verbose-csv"
        return
    for title, key, unit in (
        ("Avg GPU Utilization", "utilization", "%"),
        ("Avg GPU Power Usage", "power_watts", " watts"),
        ("Max GPU Memory Usage", "memory_used", " bytes"),
        ("Total GPU Memory", "memory_total", " bytes"),
    ):
        yield f"    {title}:"
        for uuid, values in level.gpus.items():
            if key in values:
                value = values[key] * 100 if key == "utilization" else values[key]
                yield f"      {uuid} : {value:.0f}{unit}"


def _trust(level: Measurement, settings: Settings) -> Iterator[str]:
    """How far the figures hold, and why the level ended."""
    yield f"{'Stable' if level.stable else 'Not stable'}: {level.reason}"
    pieces = [each.latency for each in level.windows]
    percent = settings.percentile if settings.percentile > 0 else 99
    if settings.stop == "confidence" and settings.percentile <= 0:
        yield from _between("the mean latency", mean_interval(pieces))
    if supported(level.response, percent):
        yield from _between(f"p{percent} latency", quantile_interval(level.response, percent / 100, pieces))
    yield from _failures(level)
    if level.tokens is not None and level.tokens.guessed:
        yield counted_events(level.tokens)
    yield from level.notes
    yield from _calibrated(level)
    if level.client.limited and level.client.limited not in level.reason:
        yield f"[WARNING] {level.client.limited}"


def _calibrated(level: Measurement) -> Iterator[str]:
    share = level.asked_share
    if not share:
        return
    yield f"the client sent {share:.0%} of the {level.most_requests:.0f} such requests a second that it can do here"
    if share > BUSY_LIMIT and not level.client.limited:
        yield "[WARNING] the client, and not the server, may be the limit: start a second one, and add what both say"


def _between(name: str, found: Interval) -> Iterator[str]:
    if found.high is not None:
        yield f"{name} is between {found.low / 1000:.0f} and {found.high / 1000:.0f} usec with 95 % confidence"


def _failures(level: Measurement) -> Iterator[str]:
    errors = level.errors
    if not errors.count:
        return
    yield f"Failed requests: {errors.measured} in the measured windows, {errors.count} in the whole level"
    if errors.first:
        yield f"First, after {errors.first[1]:.1f} s: {errors.first[0]}"
    often = sorted(errors.by_text.items(), key=lambda each: -each[1])
    for (status, text), count in often[:ERRORS_SHOWN]:
        yield f"  {count} x {status}: {text}"
    if len(often) > ERRORS_SHOWN:
        yield f"  and {len(often) - ERRORS_SHOWN} other texts"


def summary(run: Run) -> str:
    """One line for each level, after all of them."""
    percent = run.settings.percentile
    lines = [f"Inferences/Second vs. Client {'Average' if percent <= 0 else f'p{percent}'} Batch Latency"]
    for level in run.levels:
        line = (
            f"{level_name(level)}: {level.level.value:g}, throughput: {throughput(level, run.target.batch_size):g} "
            f"infer/sec, latency {_one_us(level.response, percent)} usec"
        )
        if level.open_loop:
            line += f" from the intended time, service time {_one_us(level.service, percent)} usec"
        lines.append(line)
        lines += [
            f"  {name}: throughput: {throughput(model, run.target.batch_size):g} infer/sec, latency "
            f"{_one_us(model.response, percent)} usec"
            for name, model in level.models.items()
        ]
    return "\n".join(lines) + "\n"


def _one_us(histogram: Histogram, percent: int) -> int:
    if percent > 0:
        return histogram.quantile(percent / 100) // 1000
    return average_us(histogram.sum, histogram.count)
