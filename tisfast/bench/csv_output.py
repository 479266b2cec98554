"""perf_analyzer's CSV: `-f FILE`, `--verbose-csv`.  Layer 5 (bench)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tisfast.bench.figures import (
    average_us,
    cached,
    client_parts,
    level_name,
    network_us,
    percentile_us,
    percentiles_of,
    server_parts,
    throughput,
    token_times,
)
from tisfast.bench.files import is_stream
from tisfast.bench.histogram import Histogram
from tisfast.bench.results import Measurement, Run, ServerSplit, Settings
from tisfast.bench.tokens import Tokens

GPU_COLUMNS = (
    ("Avg GPU Utilization", "utilization"),
    ("Avg GPU Power Usage", "power_watts"),
    ("Max GPU Memory Usage", "memory_used"),
    ("Total GPU Memory", "memory_total"),
)


def csv_text(run: Run, *, verbose: bool = False) -> str:
    """The file of the model itself.  A percentile that too few requests support is an empty cell."""
    return _table([_row(run, level, verbose) for level in sorted(run.levels, key=lambda level: level.throughput)])


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    """Cells by their names: one level may have had cache hits, and another none."""
    ordered = sorted(rows, key=lambda row: -len(row))  # the columns stand as in the row that has most
    names = list(dict.fromkeys(name for row in ordered for name in row))
    lines = [",".join(names)] if names else []
    lines += [",".join(row.get(name, "") for name in names) for row in rows]
    return "".join(line + "\n" for line in lines)


def csv_files(path: str, run: Run, *, verbose: bool = False) -> dict[str, str]:
    """All files by name: the model's, and of an ensemble one for each composing model, `MODEL_vVERSION.FILE`.

    Of several models each has one, too, with all columns.  On a stream they follow each other.
    """
    files = {path: csv_text(run, verbose=verbose)}
    target = Path(path)
    levels = sorted(run.levels, key=lambda each: each.throughput)
    for name in run.mixture.names if run.mixture is not None else ():
        files[_beside(target, name.replace(":", "_v"))] = _table(
            [_row(run, level.models[name], verbose) for level in levels]
        )
    keys = dict.fromkeys(key for level in run.levels if level.server for key in level.server.composing)
    for key in keys:
        rows = []
        for level in sorted(run.levels, key=lambda each: each.throughput):
            inner = level.server.composing.get(key) if level.server else None
            if inner is not None and level.server is not None:
                rows.append(_composing_row(run, level, inner, level.server))
        model, _, version = key.rpartition(":")
        files[_beside(target, f"{model}_v{version}")] = _table(rows)
    return {path: "\n".join(files.values())} if is_stream(path) else files


def _beside(target: Path, model: str) -> str:
    return str(target.with_name(f"{model.replace('/', '_')}.{target.name}"))


def _row(run: Run, level: Measurement, verbose: bool) -> dict[str, str]:
    parts = client_parts(level)
    row = {
        level_name(level): f"{level.level.value:g}",
        "Inferences/Second": f"{throughput(level, run.target.batch_size):g}",
    }
    if run.target.decoupled and level.seconds:
        row["Response Throughput"] = f"{level.responses / level.seconds:g}"
    row["Client Send"] = str(parts.send)
    if level.server is not None:
        row |= _server_cells(level.server, max(network_us(level), 0))
    row["Client Recv"] = str(parts.receive)
    row |= _percentiles("latency", level.response, run.settings)
    if verbose:
        if run.settings.percentile <= 0:
            row["Avg latency"] = str(average_us(level.response.sum, level.response.count))
        row["request/response"] = str(parts.send + parts.receive)
        row["response wait"] = str(parts.wait)
        row |= _gpu_cells(level.gpus)
    if level.open_loop:
        row["Latency From"] = "intended time"
        row |= _percentiles("service time", level.service, run.settings)
    if level.tokens is not None:
        row |= _token_cells(level, level.tokens, run.settings)
    return row


def _token_cells(level: Measurement, tokens: Tokens, settings: Settings) -> dict[str, str]:
    counted = bool(tokens.told or tokens.guessed) and level.seconds
    row = {
        "Output Tokens/Second": f"{tokens.output / level.seconds:g}" if counted else "",
        "Output Tokens": str(tokens.output) if counted else "",
        "Input Tokens": str(tokens.input) if tokens.input else "",
    }
    for name, histogram in token_times(tokens):
        row[f"Avg {name}"] = str(average_us(histogram.sum, histogram.count)) if histogram.count else ""
        row |= _percentiles(name, histogram, settings)
    return row


def _percentiles(name: str, histogram: Histogram, settings: Settings) -> dict[str, str]:
    found = {percent: percentile_us(histogram, percent) for percent in percentiles_of(settings.percentile)}
    return {f"p{percent} {name}": "" if value is None else str(value) for percent, value in found.items()}


def _server_cells(split: ServerSplit, network: int) -> dict[str, str]:
    parts = server_parts(split)
    cells = {
        "Network+Server Send/Recv": network,
        "Server Queue": parts.queue,
        "Server Compute Input": parts.compute_input,
        "Server Compute Infer": parts.compute_infer,
        "Server Compute Output": parts.compute_output,
    }
    if cached(split):
        cells |= {"Server Cache Hit": parts.cache_hit, "Server Cache Miss": parts.cache_miss}
    return {name: str(value) for name, value in cells.items()}


def _gpu_cells(gpus: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    if not gpus:
        return {}
    return {
        name: "".join(f"{uuid}:{values[key]:g};" for uuid, values in gpus.items() if key in values)
        for name, key in GPU_COLUMNS
    }


def _composing_row(run: Run, level: Measurement, inner: ServerSplit, outer: ServerSplit) -> dict[str, str]:
    share = inner.success_count / outer.success_count if outer.success_count else 0.0
    parts = server_parts(inner)
    latency = average_us(inner.success_ns, inner.success_count)
    within = parts.queue + parts.compute + parts.cache_hit + parts.cache_miss
    return {
        level_name(level): f"{level.level.value:g}",
        "Inferences/Second": f"{throughput(level, run.target.batch_size) * share:g}",
        "Client Send": "0",
        **_server_cells(inner, max(latency - within, 0)),
        "Client Recv": "0",
    }
