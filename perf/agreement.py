"""tisfast bench beside perf_analyzer: what a request costs either, and whether they say the same of one server.

Both ask the same server with the same flags, in turn.  Requests are those that the server counts, CPU time is all of
the client's process but what a short run takes, which is its start; that ratio holds on a busy machine.  `sleep_2ms`
is slow enough that neither client is the limit: there both should say the same, when what the client itself takes of
each request, its CPU time, is taken out, as one request is under way at a time.

Over gRPC, the least client (client_floor.c) stands beside what a request costs: where it misses the bar, too, the bar
says more about the machine than about a client, and counts as met.
"""

from __future__ import annotations

import http.client
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perf import client_floor
from perf.bars import EXAMPLES
from perf.figures import RunFailed
from perf.oracle import launch
from perf.oracle.launch import ROOT
from perf.oracle.server import Kind, Server

GROUP: Final = "clients"
SECONDS_MAX: Final = 120
SHORT_MS, LONG_MS, WINDOWS = 100, 1500, 3
SECONDS_EACH: Final = 2 * (WINDOWS * (SHORT_MS + LONG_MS) / 1e3 + 1.5)
"""About, of one round of one row: two runs of either client, and their starts."""
APART_MOST: Final = 0.05
CHEAPER_LEAST: Final = 3.0
LOADS: Final = ["--model-control-mode=explicit", "--load-model=add_sub", "--load-model=sleep_2ms"]
HEAD: Final = (
    "| server | protocol | model | in flight | bench req/s | perf_analyzer req/s | bench p50 µs | perf_analyzer p50 µs "
    "| bench req per CPU s | perf_analyzer req per CPU s | least client | asked | ratios | |\n" + "|---" * 14 + "|"
)


class Agreement(NamedTuple):
    """One row.  Of one request at a time it is asked whether both say the same, of several what a request costs."""

    server: Kind
    protocol: str
    model: str
    concurrency: int

    def line(self) -> str:
        """What selects this row (perf.bench --only)."""
        asked = f"{self.server}, {self.protocol} {self.model} {self.concurrency}"
        return f"{GROUP}: tisfast bench beside perf_analyzer, {asked}"


AGREEMENTS: Final = tuple(
    Agreement(server, protocol, model, concurrency)
    for server in ("tisfast", "triton")
    for protocol in ("http", "grpc")
    for model, concurrency in (("add_sub", 4), ("sleep_2ms", 1))
)


class Said(NamedTuple):
    """Of one run: its own figures, and what the server and the kernel know of it."""

    rate: float
    p50_us: float
    requests_per_cpu_second: float

    def rate_without_client(self) -> float:
        """Of one request at a time."""
        return 1e6 / (1e6 / self.rate - self._client_us)

    def p50_without_client(self) -> float:
        """Of one request at a time, µs."""
        return self.p50_us - self._client_us

    @property
    def _client_us(self) -> float:
        """CPU time of a request."""
        return 1e6 / self.requests_per_cpu_second


class Agreed(NamedTuple):
    """A row and what both said, round by round."""

    row: Agreement
    bench: list[Said]
    perf_analyzer: list[Said]
    floor: list[float]
    """Requests per CPU second of the least client; empty where none is measured."""

    @property
    def ratios(self) -> dict[str, float]:
        """Medians of the rounds' ratios, tisfast bench over perf_analyzer."""
        asked: dict[str, Callable[[Said], float]] = {
            "req/s without the client": Said.rate_without_client,
            "p50 without the client": Said.p50_without_client,
        }
        if self.row.concurrency > 1:
            asked = {"req per CPU s": lambda said: said.requests_per_cpu_second}
        pairs = list(zip(self.bench, self.perf_analyzer, strict=True))
        return {name: statistics.median(of(a) / of(b) for a, b in pairs) for name, of in asked.items()}

    @property
    def floor_ratio(self) -> float:
        """The least client over perf_analyzer, median of the rounds; 0 where it was not measured."""
        pairs = zip(self.floor, self.perf_analyzer, strict=True) if self.floor else ()
        return statistics.median([a / b.requests_per_cpu_second for a, b in pairs] or [0.0])

    @property
    def met(self) -> bool:
        """Whether all ratios are within their bars, or the least client's is not."""
        if self.row.concurrency > 1:
            reached = all(each >= CHEAPER_LEAST for each in self.ratios.values())
            return reached or 0 < self.floor_ratio < CHEAPER_LEAST
        return all(abs(each - 1) <= APART_MOST for each in self.ratios.values())

    def facts(self) -> dict[str, object]:
        """For programs."""
        return {"title": self.row.line(), "bench": [each._asdict() for each in self.bench],
                "perf_analyzer": [each._asdict() for each in self.perf_analyzer], "least_client": self.floor,
                "ratios": self.ratios, "met": self.met}  # fmt: skip


def agreed_row(found: Agreed) -> str:
    """A line under HEAD: medians."""
    row = found.row
    cells = [row.server, row.protocol, row.model, str(row.concurrency)]
    for at in range(len(Said._fields)):
        cells += [f"{statistics.median(each[at] for each in side):.0f}" for side in (found.bench, found.perf_analyzer)]
    cells.append(f"{statistics.median(found.floor):.0f} ({found.floor_ratio:.3f})" if found.floor else "-")
    asked = f"at least {CHEAPER_LEAST:g}" if row.concurrency > 1 else f"1 ± {APART_MOST:g}"
    told = ", ".join(f"{name} {ratio:.3f}" for name, ratio in found.ratios.items())
    return "| " + " | ".join([*cells, asked, told, "met" if found.met else "**missed**"]) + " |"


def agreed(rows: Sequence[Agreement], rounds: int, failures: list[str], show: Callable[[str], None]) -> list[Agreed]:
    """Measure them; what fails is told and left out."""
    found = []
    for kind in dict.fromkeys(row.server for row in rows):
        with (
            tempfile.TemporaryDirectory(prefix="tisfast-perf-") as folder,
            Server(kind, [EXAMPLES.models, ROOT / "perf/models"], LOADS) as server,
        ):
            for row in (each for each in rows if each.server == kind):
                try:
                    found.append(_compared(server, row, rounds, Path(folder)))
                except (RunFailed, subprocess.SubprocessError) as e:
                    failures.append(f"{row.line()}: {e}")
                    show(f"FAILED {failures[-1][:600]}")
                    continue
                show(agreed_row(found[-1]))
    return found


def _compared(server: Server, row: Agreement, rounds: int, folder: Path) -> Agreed:
    """folder: the least client is built there."""
    url = f"127.0.0.1:{server.http if row.protocol == 'http' else server.grpc}"
    flags = ["-m", row.model, "-i", row.protocol, "-u", url, "--concurrency-range", str(row.concurrency)]
    flags += ["-s", "999", "-r", str(WINDOWS)]
    theirs = launch.perf_analyzer(flags)
    ours = [sys.executable, "-m", "tisfast", "bench", *flags]
    found = Agreed(row, [], [], [])
    floor: list[str] = []
    if row.protocol == "grpc" and row.concurrency > 1:
        floor = client_floor.command(folder, server.grpc, row.model, row.concurrency)
    for number in range(rounds):
        sides = [(ours, found.bench), (theirs.command, found.perf_analyzer)]
        for command, said in sides if number % 2 else sides[::-1]:
            said.append(_said(command, theirs.env, server, row.model))
        if floor:
            found.floor.append(_floor_per_cpu_second(floor, theirs.env, server, row.model))
    return found


class _Spent(NamedTuple):
    """By one client, from its start to its end."""

    requests: int
    cpu_seconds: float
    out: str


def _said(command: Sequence[str], env: dict[str, str], server: Server, model: str) -> Said:
    """A short run and a longer one: what the longer one has more is the load."""
    short = _spent([*command, "-p", str(SHORT_MS)], env, server, model)
    long = _spent([*command, "-p", str(LONG_MS)], env, server, model)
    rate, p50 = (re.search(rf"{name}: ([\d.]+)", long.out) for name in ("Throughput", "p50 latency"))
    if rate is None or p50 is None:
        raise RunFailed(f"no figures: {long.out}")
    return Said(float(rate[1]), float(p50[1]), _per_cpu_second(short, long))


def _floor_per_cpu_second(command: Sequence[str], env: dict[str, str], server: Server, model: str) -> float:
    short, long = (_spent([*command, str(WINDOWS * ms)], env, server, model) for ms in (SHORT_MS, LONG_MS))
    return _per_cpu_second(short, long)


def _per_cpu_second(short: _Spent, long: _Spent) -> float:
    return (long.requests - short.requests) / (long.cpu_seconds - short.cpu_seconds)


def _spent(command: Sequence[str], env: dict[str, str], server: Server, model: str) -> _Spent:
    before, cpu = _counted(server, model), _cpu_seconds()
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
    return _Spent(_counted(server, model) - before, _cpu_seconds() - cpu, done.stdout)


def _counted(server: Server, model: str) -> int:
    """Inferences of the model until now."""
    connection = http.client.HTTPConnection("localhost", server.http, timeout=10)
    connection.request("GET", f"/v2/models/{model}/stats")
    stats = json.loads(connection.getresponse().read())["model_stats"]
    connection.close()
    return sum(int(each["inference_stats"]["success"]["count"]) for each in stats)


def _cpu_seconds() -> float:
    """Of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
