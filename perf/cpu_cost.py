"""What requests cost a server: processor time of all its processes at fixed rates, beside Triton's.

    python -m perf.cpu_cost                             Triton, and tisfast by default and with --spin-us=0: 6 minutes
    python -m perf.cpu_cost --spin-us 0,50 --rates 1000 --protocols http --rounds 5

perf_analyzer sends add_sub's requests at a fixed rate, however long answers take.  What the threads of the server, its
nurseries and workers have run meanwhile is divided by the requests that its statistics count.  The rate 0 tells what a
server takes while nobody asks.  Processor time means the same beside others on the machine; latencies do not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perf.clients import Load, Protocol, measure
from perf.compare import address, complaining
from perf.figures import Figures, RunFailed, middle
from perf.oracle.launch import ROOT
from perf.oracle.server import Server

MODEL: Final = "add_sub"
DEFAULT: Final = "default"
HEADING: Final = (
    f"{'':4} {'rate':>5} {'server':12} | {'cores':>6} {'us/req':>6} {'ratio':>6} | "
    f"{'req/s':>6} {'p50us':>6} {'p99us':>6}"
)
ATTEMPTS_MAX: Final = 5


class Cost(NamedTuple):
    """cores: processor seconds a second; request_us: processor time of a request, NaN at rate 0; answers: as the client
    saw them."""

    cores: float
    request_us: float
    answers: Figures


class _Spent(NamedTuple):
    """So far."""

    at: float
    cpu_seconds: float
    requests: int


def cpu_seconds(pids: Sequence[int]) -> float:
    """What all threads of these processes have run; those that have ended are not in it."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # ended meanwhile
                total += int(path.read_text().split(maxsplit=1)[0])
    return total / 1e9


def patient_cost(server: Server, protocol: Protocol, rate: int, seconds: float) -> Cost:
    """The same; perf_analyzer gives no figures at times on a busy machine, and is run again."""
    for _ in range(ATTEMPTS_MAX - 1):
        with contextlib.suppress(RunFailed):
            return cost(server, protocol, rate, seconds)
    return cost(server, protocol, rate, seconds)


def cost(server: Server, protocol: Protocol, rate: int, seconds: float) -> Cost:
    """Of one run at a rate; raises RunFailed."""
    before = _spent(server)
    answers = Figures(0.0, float("nan"), float("nan"))
    if rate:
        load = Load("perf_analyzer", MODEL, 1, protocol, rate=rate)
        answers = measure(load, address(server), seconds)
    else:
        time.sleep(seconds)
    after = _spent(server)
    spent, requests = after.cpu_seconds - before.cpu_seconds, after.requests - before.requests
    per_request = spent / requests * 1e6 if requests else float("nan")
    return Cost(spent / (after.at - before.at), per_request, answers)


def _spent(server: Server) -> _Spent:
    with urllib.request.urlopen(f"http://{server.address}/v2/models/{MODEL}/stats", timeout=10) as answer:
        requests = json.load(answer)["model_stats"][0]["inference_stats"]["success"]["count"]
    return _Spent(time.perf_counter(), cpu_seconds(server.pids()), requests)


def _servers(spins: Sequence[str]) -> dict[str, Server]:
    repository = [ROOT / "examples" / "models"]
    found = {"triton": Server("triton", repository)}
    for spin in spins:
        found[f"spin {spin}"] = Server("tisfast", repository, [] if spin == DEFAULT else [f"--spin-us={spin}"])
    return found


def _row(protocol: str, rate: int, name: str, runs: Sequence[Cost], least: float) -> str:
    cores, request_us = (statistics.median(values) for values in list(zip(*runs, strict=True))[:2])
    seen = middle([run.answers for run in runs])
    ratio = (cores if not rate else request_us) / least if least else 1.0
    return (
        f"{protocol} {rate:5} {name:12} | {cores:6.3f} {request_us:6.0f} {ratio:6.2f} | "
        f"{seen.rate:6.0f} {seen.p50:6.0f} {seen.p99:6.0f}"
    )


def _compare(options: argparse.Namespace) -> int:
    print(HEADING)
    servers = _servers(options.spin_us)
    with contextlib.ExitStack() as stack:
        for server in servers.values():
            stack.enter_context(server)
        for protocol in options.protocols:
            for rate in options.rates:
                runs: dict[str, list[Cost]] = {name: [] for name in servers}
                for _ in range(options.rounds):
                    for name, server in servers.items():
                        runs[name].append(patient_cost(server, protocol, rate, options.seconds))
                triton = statistics.median(run.request_us if rate else run.cores for run in runs["triton"])
                for name, found in runs.items():
                    print(_row(protocol, rate, name, found, triton), flush=True)
    return 0


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spin-us", type=_words, default=[DEFAULT, "0"], help="of tisfast, comma-separated")
    parser.add_argument("--rates", type=_numbers, default=[0, 100, 1000, 4000])
    parser.add_argument("--protocols", type=_words, default=["http", "grpc"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one of perf_analyzer's three windows")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    raise SystemExit(complaining(lambda: _compare(options)))
