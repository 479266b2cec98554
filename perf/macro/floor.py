"""How fast and how even could any server be here?  tisfast and a C program that only receives and sends, beside Triton.

    python -m perf.macro.floor [--rounds 6]

A bar that this program misses (floor.c: one thread, no model, no isolation) says more about the machine and the client
than about a server.  It is measured asleep and polling, as a server may do either.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perf.clients import Address, Load, measure
from perf.compare import complaining
from perf.figures import Figures, middle, ratio
from perf.machine import losses
from perf.oracle.install import install
from perf.oracle.launch import ROOT
from perf.oracle.server import Server

ROUNDS: Final = 6
SECONDS: Final = 1.5
SOURCE: Final = ROOT / "perf/macro/floor.c"
IMAGE: Final = "identity_fp32:INPUT0:150528"
SMALL: Final = "identity_fp32:INPUT0:4"
LOADS: Final = (
    *(Load("wrk", "bin4", n) for n in (1, 8, 32)),
    *(Load("perf_analyzer", SMALL, n) for n in (1, 4, 16)),
    *(Load("perf_analyzer", IMAGE, n) for n in (1, 4)),
)
HEADING: Final = (
    f"{'case':28} {'client':>13} {'conc':>4} {'server':13} | {'req/s':>8} {'p50us':>6} {'p99us':>6} |"
    f" {'beside Triton: p50':>18} {'p99':>6} {'p99/p50':>8}"
)


def build(folder: Path) -> Path:
    """The C program, compiled there."""
    program = folder / "floor"
    subprocess.run(["cc", "-O2", "-o", str(program), str(SOURCE)], check=True)
    return program


@contextlib.contextmanager
def floor(program: Path, upstream_port: int, *, spins: bool) -> Iterator[Address]:
    """The program while it is measured: polling, it takes a core from all others."""
    command = [str(program), str(upstream_port), str(int(spins))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Address(f"localhost:{process.stdout.readline().strip()}", "", (process.pid,))
        finally:
            process.kill()


def lines(load: Load, found: dict[str, Figures]) -> Iterator[str]:
    """Rows under HEADING: each server's figures, their ratios to Triton's, and the ratio of those ratios."""
    for name, figures in found.items():
        beside = ratio(found["Triton"], figures)
        yield (
            f"{load.case:28} {load.client:>13} {load.concurrency:4} {name:13} |"
            f" {figures.rate:8.0f} {figures.p50:6.0f} {figures.p99:6.0f} |"
            f" {beside.p50:18.3f} {beside.p99:6.3f} {beside.p99 / beside.p50:8.2f}"
        )


def _compare(options: argparse.Namespace) -> int:
    install()
    models = [ROOT / "examples/models"]
    print(f"before the run, a thread that only spins lost its core {losses(2.0).per_second:.0f} times a second")
    print(HEADING)
    with tempfile.TemporaryDirectory() as folder, Server("triton", models) as a, Server("tisfast", models) as b:
        program = build(Path(folder))
        for load in LOADS:
            runs: dict[str, list[Figures]] = {}
            for _ in range(options.rounds):
                for name, server in (("Triton", a), ("tisfast", b)):
                    address = Address(server.address, "", (server.pid,))
                    runs.setdefault(name, []).append(measure(load, address, SECONDS))
                for name, spins in (("C, asleep", False), ("C, polling", True)):
                    with floor(program, b.http, spins=spins) as address:
                        runs.setdefault(name, []).append(measure(load, address, SECONDS))
            print(*lines(load, {name: middle(each) for name, each in runs.items()}), sep="\n", flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(complaining(lambda: _compare(_options())))
