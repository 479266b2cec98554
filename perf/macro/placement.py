"""Small requests by who shares a core with whom: server, worker, client.

    python -m perf.macro.placement [--rounds 5] [--connections 1,8,32]

On two cores three threads take turns, and two of them share one. Here wrk, server and worker are pinned so that it is
each two of them in turns; then nobody is pinned. A client beside the server is woken by it without a signal to another
core; that signal is what other places cost, and a core that server and client share is what that place does.
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


def _measure(server: Server, connections: int, client: Iterable[int]) -> Figures:
    """wrk inherits the cores of this process."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, client)
    try:
        return wrk(server.address, CASE, connections, SECONDS)
    finally:
        os.sched_setaffinity(0, all_cores)


def _rounds(server: Server, connections: int, rounds: int, cores: Sequence[int]) -> dict[str, list[Figures]]:
    pid = _worker(server)
    one, other = ({core} for core in cores[:2])
    places: dict[str, tuple[Iterable[int], Iterable[int], Iterable[int]]] = {  # of server, worker and client
        "beside the server": (one, other, one),
        "beside the worker": (one, other, other),
        "alone": (one, one, other),
        "as it comes": (cores, cores, cores),
    }
    found: dict[str, list[Figures]] = {where: [] for where in places}
    for _ in range(rounds):
        for where, (ours, theirs, client) in places.items():
            _pin(server.pid, ours)
            _pin(pid, theirs)
            found[where].append(_measure(server, connections, client))
    return found


def _compare(options: argparse.Namespace) -> int:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("placement needs two cores")
    print(f"before the run, a thread that only spins lost its core {losses(2.0).per_second:.0f} times a second")
    with Server("tisfast", [ROOT / "examples" / "models"]) as server:
        for connections in options.connections:
            wrk(server.address, CASE, connections, SECONDS)  # warm
            for where, runs in _rounds(server, connections, options.rounds, cores).items():
                rate, p50, p99 = middle(runs)
                place = f"connections {connections:2}, client {where:18}"
                print(f"{place} {rate:6.0f} requests/s, p50 {p50:3.0f} us, p99 {p99:3.0f} us", flush=True)
    return 0


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--connections", type=_numbers, default=[1, 8, 32], metavar="N,N")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(complaining(lambda: _compare(_options())))
