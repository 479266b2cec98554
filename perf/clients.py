"""The load generators: perf_analyzer, which Triton's users know; wrk and h2load, which cost a fraction of it."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from perf.figures import Figures, RunFailed, run_client
from perf.h2load import h2load
from perf.oracle import launch
from perf.wrk import wrk

PERF_ANALYZER_SECONDS_MAX: Final = 240
WINDOWS: Final = 3

Protocol = Literal["http", "grpc"]
Client = Literal["perf_analyzer", "wrk", "h2load"]
ONLY: Final[dict[Client, Protocol]] = {"wrk": "http", "h2load": "grpc"}
"""The protocol of clients that speak one."""


class Load(NamedTuple):
    """What is sent.

    case: MODEL or MODEL:INPUT:DIMS for perf_analyzer; binN or jsonN (N floats to add_sub or identity_fp32) or
    MODEL/binN, MODEL/bin1xN (shapes [N], [1, N] of INPUT0) for wrk; add_sub for h2load.
    shared_bytes: size of each output in system shared memory, inputs lying there too; 0: tensors go through the socket.
    flags: what perf_analyzer is told beside that.  rate: requests a second that it sends, however long answers take; 0:
    `concurrency` are in flight.
    """

    client: Client
    case: str
    concurrency: int
    protocol: Protocol = "http"
    shared_bytes: int = 0
    flags: tuple[str, ...] = ()
    rate: int = 0

    def __str__(self) -> str:
        """For messages."""
        return f"{self.case}, {self.protocol}, {self.client}, concurrency {self.concurrency}"


class Address(NamedTuple):
    """HOST:PORT of both protocols; empty where a server has none; the server's process where it was started here."""

    http: str
    grpc: str
    servers: tuple[int, ...] = ()


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
    name, figure = ("request-rate", load.rate) if load.rate else ("concurrency", load.concurrency)
    flags += [f"--{name}-range", f"{figure}:{figure}"]
    if load.shared_bytes:
        flags += ["--shared-memory=system", f"--output-shared-memory-size={load.shared_bytes}"]
    return [*flags, *load.flags]
