"""tisfast bench beside perf_analyzer: what a request costs either, and whether they say the same of one server.

    python -m perf.bench_agreement [--rounds N] [--server tisfast|triton]

Both ask the same server with the same flags, in turn.  Requests are those that the server counts, CPU time is all of
the client's process but what a short run takes, which is its start; that ratio holds on a busy machine.  `sleep_2ms` is
slow enough that neither client is the limit: there throughput and p50 are compared, as they are told, and without what
the client itself takes of each request: its CPU time, as one request is under way at a time.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perf.oracle import launch
from perf.oracle.server import Server

MODELS: Final = Path(__file__).parent / "models"
SIMPLE: Final = Path(__file__).parents[1] / "examples/models"
SECONDS_MAX: Final = 120


class Said(NamedTuple):
    """Of one run: its own figures, and what the server and the kernel know of it."""

    rate: float
    p50_us: float
    requests_per_cpu_second: float

    @property
    def _client_us(self) -> float:
        """CPU time of a request."""
        return 1e6 / self.requests_per_cpu_second

    def rate_without_client(self) -> float:
        """Of one request at a time."""
        return 1e6 / (1e6 / self.rate - self._client_us)

    def p50_without_client(self) -> float:
        """Of one request at a time, µs."""
        return self.p50_us - self._client_us


class Spent(NamedTuple):
    """By one client, from its start to its end."""

    requests: int
    cpu_seconds: float
    out: str


def client(command: Sequence[str], env: dict[str, str], server: Server, model: str) -> Spent:
    """Run it."""
    before, cpu = counted(server, model), cpu_seconds()
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
    return Spent(counted(server, model) - before, cpu_seconds() - cpu, done.stdout)


def run(command: Sequence[str], env: dict[str, str], server: Server, model: str) -> Said:
    """A short run and a longer one: what the longer one has more is the load."""
    short = client([*command, "-p", "100"], env, server, model)
    long = client([*command, "-p", "1500"], env, server, model)
    rate, p50 = (re.search(rf"{name}: ([\d.]+)", long.out) for name in ("Throughput", "p50 latency"))
    assert rate is not None, long.out
    assert p50 is not None, long.out
    per_second = (long.requests - short.requests) / (long.cpu_seconds - short.cpu_seconds)
    return Said(float(rate[1]), float(p50[1]), per_second)


def counted(server: Server, model: str) -> int:
    """Inferences of the model until now."""
    connection = http.client.HTTPConnection("localhost", server.http, timeout=10)
    connection.request("GET", f"/v2/models/{model}/stats")
    stats = json.loads(connection.getresponse().read())["model_stats"]
    connection.close()
    return sum(int(each["inference_stats"]["success"]["count"]) for each in stats)


def cpu_seconds() -> float:
    """Of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compared(server: Server, protocol: str, model: str, concurrency: int, rounds: int) -> str:
    """A line of the table: medians over the rounds."""
    url = f"127.0.0.1:{server.http if protocol == 'http' else server.grpc}"
    flags = ["-m", model, "-i", protocol, "-u", url, "--concurrency-range", str(concurrency)]
    flags += ["-s", "999", "-r", "3"]
    theirs = launch.perf_analyzer(flags)
    ours = [sys.executable, "-m", "tisfast", "bench", *flags]
    pairs = []
    for number in range(rounds):
        both = [(ours, theirs.env), (theirs.command, theirs.env)]
        said = [run(command, env, server, model) for command, env in (both if number % 2 else both[::-1])]
        pairs.append(said if number % 2 else said[::-1])
    mine, other = ([pair[side] for pair in pairs] for side in (0, 1))
    cells = [protocol, model, str(concurrency)]
    for name in Said._fields:
        values = [statistics.median(getattr(each, name) for each in side) for side in (mine, other)]
        ratio = statistics.median(getattr(a, name) / getattr(b, name) for a, b in pairs)
        cells += [f"{values[0]:.0f}", f"{values[1]:.0f}", f"{ratio:.3f}"]
    for of in (Said.rate_without_client, Said.p50_without_client):
        cells.append(f"{statistics.median(of(a) / of(b) for a, b in pairs):.3f}" if concurrency == 1 else "")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--server", choices=("tisfast", "triton"), default="tisfast")
    given = parser.parse_args()
    names = ("requests/s", "p50 µs", "requests per client CPU second")
    columns = ["protocol", "model", "in flight"]
    columns += [f"{name}, {what}" for name in names for what in ("tisfast bench", "perf_analyzer", "ratio")]
    columns += [f"{name} without the client, ratio" for name in names[:2]]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    loads = ["--model-control-mode=explicit", "--load-model=add_sub", "--load-model=sleep_2ms"]
    with Server(given.server, [SIMPLE, MODELS], loads) as server:
        for protocol in ("http", "grpc"):
            for model, concurrency in (("add_sub", 4), ("sleep_2ms", 1)):
                print(compared(server, protocol, model, concurrency, given.rounds), flush=True)


if __name__ == "__main__":
    main()
