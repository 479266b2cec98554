"""The load generators: perf_analyzer, which Triton's users know; wrk and h2load, which cost a fraction of it."""

from __future__ import annotations

import csv
import json
import math
import re
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from perf.figures import Figures, RunFailed, run_client
from perf.h2load import h2load
from perf.oracle import launch

PERF_ANALYZER_SECONDS_MAX: Final = 240
WRK_SECONDS_MORE_MAX: Final = 60
WINDOWS: Final = 3

Protocol = Literal["http", "grpc"]
Client = Literal["perf_analyzer", "wrk", "h2load"]
ONLY: Final[dict[Client, Protocol]] = {"wrk": "http", "h2load": "grpc"}
"""The protocol of clients that speak one."""

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


class Load(NamedTuple):
    """What is sent.

    case: MODEL or MODEL:INPUT:DIMS for perf_analyzer; binN or jsonN (N floats to add_sub or identity_fp32) or
    MODEL/binN, MODEL/bin1xN (shapes [N], [1, N] of INPUT0) for wrk; add_sub for h2load.
    shared_bytes: size of each output in system shared memory, inputs lying there too; 0: tensors go through the socket.
    flags: what perf_analyzer is told beside that.
    """

    client: Client
    case: str
    concurrency: int
    protocol: Protocol = "http"
    shared_bytes: int = 0
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        """For messages."""
        return f"{self.case}, {self.protocol}, {self.client}, concurrency {self.concurrency}"


class Address(NamedTuple):
    """HOST:PORT of both protocols; empty where a server has none; the server's process where it was started here."""

    http: str
    grpc: str
    servers: tuple[int, ...] = ()


class Body(NamedTuple):
    """A request: its path, its bytes, and the length of the JSON part (None when there is nothing else)."""

    path: str
    data: bytes
    json_bytes: int | None


def measure(load: Load, address: Address, seconds: float) -> Figures:
    """One run; raises RunFailed."""
    if ONLY.get(load.client, load.protocol) != load.protocol:
        raise RunFailed(f"{load.client} speaks {ONLY[load.client]} only")
    target = getattr(address, load.protocol)
    if not target:
        raise RunFailed(f"this server has no {load.protocol} port")
    match load.client:
        case "perf_analyzer":
            return perf_analyzer(load, target, seconds, address.servers)
        case "wrk":
            return wrk(target, load.case, load.concurrency, seconds)
    return h2load(target, load.case, load.concurrency, seconds)


def perf_analyzer(load: Load, address: str, seconds: float, servers: Sequence[int] = ()) -> Figures:
    """The real perf_analyzer: the mean of three windows of so many seconds.

    Its own test of stability is off (-s 999): on a shared machine it often ends without a figure otherwise; rounds and
    their median take its place.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "figures.csv")
        what = launch.perf_analyzer([*analyzer_flags(load, seconds), "-u", address, "-f", str(table)])
        output = run_client(what.command, PERF_ANALYZER_SECONDS_MAX, what.env, servers)
        rows = list(csv.DictReader(table.read_text().splitlines())) if table.exists() else []
    if not rows:
        raise RunFailed(f"perf_analyzer gave no figures: {output[-2000:]}")
    row = rows[0]
    return Figures(float(row["Inferences/Second"]), float(row["p50 latency"]), float(row["p99 latency"]))


def analyzer_flags(load: Load, seconds: float) -> list[str]:
    """What perf_analyzer is told of a load."""
    model, *shape = load.case.split(":", 1)
    flags = ["-m", model, *(["--shape", shape[0]] if shape else []), "-i", load.protocol]
    flags += ["-p", str(int(seconds * 1000)), "-s", "999", "-r", str(WINDOWS)]
    flags += ["--concurrency-range", f"{load.concurrency}:{load.concurrency}"]
    if load.shared_bytes:
        flags += ["--shared-memory=system", f"--output-shared-memory-size={load.shared_bytes}"]
    return [*flags, *load.flags]


def wrk(address: str, case: str, concurrency: int, seconds: float) -> Figures:
    """wrk, one thread, over keep-alive connections."""
    body = wrk_body(case)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "body").write_bytes(body.data)
        head = f'wrk.headers["Inference-Header-Content-Length"] = "{body.json_bytes}"' if body.json_bytes else ""
        script = Path(folder, "post.lua")
        script.write_text(_LUA % {"body": f"{folder}/body", "path": body.path, "head": head})
        flags = ["-t1", f"-c{concurrency}", f"-d{max(1, round(seconds))}s", "--latency", "-s", str(script)]
        output = run_client([launch.wrk(), *flags, f"http://{address}"], seconds + WRK_SECONDS_MORE_MAX)
    found = re.search(r"FIGURES (\d+) (\d+) (\d+) (\d+) (\d+)", output)
    if not found:
        raise RunFailed(f"wrk gave no figures: {output[-2000:]}")
    count, duration_us, p50, p99, bad = map(int, found.groups())
    if bad or not count:
        raise RunFailed(f"wrk: {bad} bad answers of {count}")
    return Figures(count / duration_us * 1e6, p50, p99)


def wrk_body(case: str) -> Body:
    """The request of a case; without a model: add_sub for 4 floats, identity_fp32 for any other number."""
    found = re.fullmatch(r"(?:(\w+)/)?(bin|json)(\d+(?:x\d+)*)", case)
    if not found:
        raise RunFailed(f"unknown case {case!r} for wrk; it is binN or jsonN, N the number of floats, or MODEL/bin1xN")
    shape = [int(size) for size in found[3].split("x")]
    usual = "add_sub" if shape == [4] else "identity_fp32"
    model, names = found[1] or usual, ("INPUT0", "INPUT1") if (found[1] or usual) == "add_sub" else ("INPUT0",)
    count = math.prod(shape)
    values = [float(i % 7) for i in range(count)]
    path = f"/v2/models/{model}/infer"
    inputs = [{"name": name, "shape": shape, "datatype": "FP32"} for name in names]
    if found[2] == "json":
        return Body(path, json.dumps({"inputs": [{**each, "data": values} for each in inputs]}).encode(), None)
    inputs = [{**each, "parameters": {"binary_data_size": 4 * count}} for each in inputs]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return Body(path, head + struct.pack(f"<{count}f", *values) * len(names), len(head))
