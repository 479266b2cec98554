"""Latency of one small request at a time, by who shares a core with whom: server, worker, client.

    python -m perf.macro.placement [--rounds 5]

On two cores three threads take turns, and two of them share one. Here the server is pinned to one core, the worker to
the other, and wrk to either; then nobody is pinned. A client beside the server is woken by it without a signal to
another core; that signal is what the other place costs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from perf.compare import complaining
from perf.figures import Figures, middle
from perf.machine import losses
from perf.oracle.launch import ROOT
from perf.oracle.server import Server
from perf.wrk import wrk

ROUNDS: Final = 5
SECONDS: Final = 2.0
CASE: Final = "bin4"


def _worker(server: Server) -> int:
    """Workers are named after their instance."""
    return next(pid for pid in server.pids() if Path(f"/proc/{pid}/comm").read_text().startswith("add_sub"))


def _pin(pid: int, cores: Iterable[int]) -> None:
    """All threads of a process."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def _measure(server: Server, client: Iterable[int]) -> Figures:
    """wrk inherits the cores of this process."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, client)
    try:
        return wrk(server.address, CASE, 1, SECONDS)
    finally:
        os.sched_setaffinity(0, all_cores)


def _rounds(server: Server, rounds: int, cores: Sequence[int]) -> dict[str, list[Figures]]:
    pid = _worker(server)
    one, other = cores[:2]
    found: dict[str, list[Figures]] = {"beside the server": [], "beside the worker": [], "as it comes": []}
    for _ in range(rounds):
        _pin(server.pid, {one})
        _pin(pid, {other})
        found["beside the server"].append(_measure(server, {one}))
        found["beside the worker"].append(_measure(server, {other}))
        _pin(server.pid, cores)
        _pin(pid, cores)
        found["as it comes"].append(_measure(server, cores))
    return found


def _compare(options: argparse.Namespace) -> int:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("placement needs two cores")
    print(f"before the run, a thread that only spins lost its core {losses(2.0).per_second:.0f} times a second")
    with Server("tisfast", [ROOT / "examples" / "models"]) as server:
        wrk(server.address, CASE, 1, SECONDS)  # warm
        for where, runs in _rounds(server, options.rounds, cores).items():
            rate, p50, p99 = middle(runs)
            print(f"client {where:18} {rate:6.0f} requests/s, p50 {p50:3.0f} us, p99 {p99:3.0f} us")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(complaining(lambda: _compare(_options())))
