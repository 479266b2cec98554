"""The two load generators: the real perf_analyzer, which Triton's users know, and wrk, which costs a fifth of it."""

from __future__ import annotations

import csv
import json
import re
import statistics
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from perf.oracle import launch

PERF_ANALYZER_SECONDS_MAX: Final = 240
WRK_SECONDS_MORE_MAX: Final = 60
WINDOWS: Final = 3

Client = Literal["perf_analyzer", "wrk"]

_LUA: Final = """
local file = io.open(%(body)r, "rb"); local body = file:read("*a"); file:close()
wrk.method = "POST"; wrk.path = %(path)r; wrk.body = body
%(head)s
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("FIGURES %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.status + e.connect + e.read + e.write + e.timeout))
end
"""


class Figures(NamedTuple):
    """What one run measured: requests a second, and latencies in microseconds."""

    rate: float
    p50: float
    p99: float


class Body(NamedTuple):
    """A request: its path, its bytes, and the length of the JSON part (None when there is nothing else)."""

    path: str
    data: bytes
    json_bytes: int | None


class RunFailed(RuntimeError):
    """The load generator gave no figures, or some answers were not 200; the text has its output."""


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each figure over some runs."""
    return Figures(*(statistics.median(values) for values in zip(*runs, strict=True)))


def ratio(a: Figures, b: Figures) -> Figures:
    """B over A, figure by figure."""
    return Figures(*(y / max(x, 1e-9) for x, y in zip(a, b, strict=True)))


def measure(client: Client, address: str, case: str, concurrency: int, seconds: float) -> Figures:
    """One run.  case: MODEL or MODEL:INPUT:DIMS for perf_analyzer; binN or jsonN (N floats) for wrk."""
    run = perf_analyzer if client == "perf_analyzer" else wrk
    return run(address, case, concurrency, seconds)


def perf_analyzer(address: str, case: str, concurrency: int, seconds: float) -> Figures:
    """The real perf_analyzer: the mean of three windows of so many seconds.

    Its own test of stability is off (-s 999): on a shared machine it often ends without a figure otherwise; rounds and
    their median take its place.
    """
    model, *shape = case.split(":", 1)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "figures.csv")
        flags = [
            "-m",
            model,
            "-i",
            "http",
            "-u",
            address,
            "-f",
            str(table),
            "-p",
            str(int(seconds * 1000)),
            "-s",
            "999",
        ]
        flags += ["-r", str(WINDOWS), "--concurrency-range", f"{concurrency}:{concurrency}"]
        what = launch.perf_analyzer([*flags, *(["--shape", shape[0]] if shape else [])])
        output = _run(what.command, PERF_ANALYZER_SECONDS_MAX, what.env)
        rows = list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []
    if not rows:
        raise RunFailed(f"perf_analyzer gave no figures: {output[-2000:]}")
    row = rows[0]
    return Figures(float(row["Inferences/Second"]), float(row["p50 latency"]), float(row["p99 latency"]))


def wrk(address: str, case: str, concurrency: int, seconds: float) -> Figures:
    """wrk, one thread, over keep-alive connections."""
    body = wrk_body(case)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "body").write_bytes(body.data)
        head = f'wrk.headers["Inference-Header-Content-Length"] = "{body.json_bytes}"' if body.json_bytes else ""
        script = Path(folder, "post.lua")
        script.write_text(_LUA % {"body": f"{folder}/body", "path": body.path, "head": head})
        flags = ["-t1", f"-c{concurrency}", f"-d{max(1, round(seconds))}s", "--latency", "-s", str(script)]
        output = _run([launch.wrk(), *flags, f"http://{address}"], seconds + WRK_SECONDS_MORE_MAX)
    found = re.search(r"FIGURES (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    if not found:
        raise RunFailed(f"wrk gave no figures: {output[-2000:]}")
    count, duration_us, p50, p99, bad = map(int, found.groups())
    if bad or not count:
        raise RunFailed(f"wrk: {bad} bad answers of {count}")
    return Figures(count / duration_us * 1e6, p50, p99)


def wrk_body(case: str) -> Body:
    """The request of a case: add_sub for 4 floats, identity_fp32 for any other number."""
    found = re.fullmatch(r"(bin|json)(\d+)", case)
    if not found:
        raise RunFailed(f"unknown case {case!r} for wrk; it is binN or jsonN, N the number of floats")
    kind, count = found[1], int(found[2])
    model, names = ("add_sub", ("INPUT0", "INPUT1")) if count == 4 else ("identity_fp32", ("INPUT0",))
    values = [float(i % 7) for i in range(count)]
    path = f"/v2/models/{model}/infer"
    inputs = [{"name": name, "shape": [count], "datatype": "FP32"} for name in names]
    if kind == "json":
        return Body(path, json.dumps({"inputs": [{**each, "data": values} for each in inputs]}).encode(), None)
    inputs = [{**each, "parameters": {"binary_data_size": 4 * count}} for each in inputs]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return Body(path, head + struct.pack(f"<{count}f", *values) * len(names), len(head))


def _run(command: Sequence[str], seconds_max: float, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=seconds_max)
    except subprocess.TimeoutExpired as e:
        raise RunFailed(f"{command[0]} did not end within {seconds_max} s") from e
    return done.stdout + done.stderr
