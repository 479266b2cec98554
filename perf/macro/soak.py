"""A bounded soak: a million small requests, then mixed sizes; memory, descriptors and processes must not grow.

python -m perf.macro.soak                          # a million small ones, then ten minutes of mixed sizes
python -m perf.macro.soak --requests 50000 --mixed-seconds 20
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from perf.compare import complaining
from perf.figures import Figures
from perf.macro.growth import held, report
from perf.oracle.launch import ROOT
from perf.oracle.server import Server
from perf.wrk import wrk

SLICE_SECONDS: Final = 5.0
MIXED: Final = (
    "bin1",
    "bin16",
    "json4",
    "bin1000",
    "json1000",
    "bin150528",
    "bin50000",
    "bin1048576",
    "bin7",
    "bin4194304",
)
CONNECTIONS: Final = 8
CALM_SECONDS: Final = 12.0
"""Longer than the arena's trim time, so that free pages have gone back to the system when memory is read."""


def small(server: Server, requests: int) -> None:
    """So many requests of add_sub, in slices, with a line for each."""
    sent = 0
    while sent < requests:
        figures = wrk(server.address, "bin4", CONNECTIONS, SLICE_SECONDS)
        sent += _count(figures)
        print(f"{sent:9} small requests, {figures.rate:.0f}/s, {held(server)}", flush=True)


def mixed(server: Server, seconds: float) -> None:
    """Sizes from 4 bytes to 16 MB in turn, until the time is over; each size at least once."""
    end = time.monotonic() + seconds
    turn = 0
    while turn < len(MIXED) or time.monotonic() < end:
        case = MIXED[turn % len(MIXED)]
        wrk(server.address, case, CONNECTIONS, 1)
        turn += 1
        if turn % len(MIXED) == 0:
            print(f"{turn:9} slices of mixed sizes, {held(server)}", flush=True)


def _count(figures: Figures) -> int:
    return int(figures.rate * SLICE_SECONDS)


def _soak(options: argparse.Namespace) -> int:
    with Server(options.server, [ROOT / "examples/models"]) as server:
        mixed(server, 0)  # warm: every size once, so that pools and arenas have their final size
        small(server, 1)
        time.sleep(CALM_SECONDS)
        warm = held(server)
        print(f"warm: {warm}", flush=True)
        small(server, options.requests)
        mixed(server, options.mixed_seconds)
        time.sleep(CALM_SECONDS)
        return report(warm, held(server))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000, help="small requests (default: %(default)s)")
    parser.add_argument("--mixed-seconds", type=float, default=600, help="time for mixed sizes (default: %(default)s)")
    parser.add_argument("--server", choices=("tisfast", "triton"), default="tisfast")
    return parser.parse_args()


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _soak(_chosen)))
