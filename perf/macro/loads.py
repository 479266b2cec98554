"""One load of one small Python model, and the end of a server, beside the real Triton.

    python -m perf.macro.loads                # both servers, with and without auto-complete; then SIGTERM
    python -m perf.macro.loads --loads 5

A load is a POST to .../load of a model that is not loaded, from the request to the answer; it is unloaded in between.
SIGTERM comes while ten clients keep a connection open and ask nothing; the time is that to the process's end.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from perf.compare import complaining
from perf.macro.many_models import infer, write_model
from perf.oracle.server import STOP_SECONDS_MAX, Kind, Server

LOADS: Final = 9
CLIENTS: Final = 10
MODEL: Final = "small"
KINDS: Final[tuple[Kind, ...]] = ("triton", "tisfast")
BARS: Final = {"auto-complete": 0.15, "as written": 0.6}
EXIT_SECONDS_MAX: Final = 1.0
UNLOAD_SECONDS_MAX: Final = 20
POLL_SECONDS: Final = 0.01


def _post(server: Server, target: str) -> None:
    connection = http.client.HTTPConnection("localhost", server.http, timeout=60)
    try:
        connection.request("POST", f"/v2/repository/models/{MODEL}/{target}")
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise RuntimeError(f"{target} answered {answer.status} {text[:200]!r}")


def _unload(server: Server) -> None:
    _post(server, "unload")
    deadline = time.monotonic() + UNLOAD_SECONDS_MAX
    while server.get(f"/v2/models/{MODEL}/ready") == http.HTTPStatus.OK and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def load_seconds(kind: Kind, repository: Path, flags: list[str], loads: int) -> float:
    """Median of so many loads, each followed by a request and an unload; the first is not counted."""
    took = []
    with Server(kind, [repository], ["--model-control-mode=explicit", *flags], "/v2/health/live") as server:
        for _ in range(loads + 1):
            began = time.perf_counter()
            _post(server, "load")
            took.append(time.perf_counter() - began)
            connection = http.client.HTTPConnection("localhost", server.http, timeout=30)
            infer(connection, MODEL)
            connection.close()
            _unload(server)
    return statistics.median(took[1:])


def exit_seconds(kind: Kind, repository: Path, clients: int) -> float:
    """From SIGTERM to the end of the process, with idle clients connected."""
    with Server(kind, [repository]) as server:
        connections = [http.client.HTTPConnection("localhost", server.http, timeout=60) for _ in range(clients)]
        for connection in connections:
            infer(connection, MODEL)
        began = time.perf_counter()
        os.kill(server.pid, signal.SIGTERM)
        if not server.dies_within(STOP_SECONDS_MAX):
            raise RuntimeError(f"{kind} does not end within {STOP_SECONDS_MAX} s")
        took = time.perf_counter() - began
        for connection in connections:
            connection.close()
        return took


def _compare(options: argparse.Namespace) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        write_model(Path(scratch), MODEL)
        for case, bar in BARS.items():
            flags = ["--disable-auto-complete-config"] if case == "as written" else []
            took = {kind: load_seconds(kind, Path(scratch), flags, options.loads) for kind in options.servers}
            wrong += _report(f"load, {case}", took, bar)
        for clients in (0, CLIENTS):
            took = {kind: exit_seconds(kind, Path(scratch), clients) for kind in options.servers}
            _report(f"SIGTERM, {clients} clients", took, None)
            wrong += took.get("tisfast", 0.0) > EXIT_SECONDS_MAX
    return 1 if wrong else 0


def _report(case: str, took: dict[Kind, float], bar: float | None) -> int:
    """Prints one line; 1 when the bar is missed."""
    figures = ", ".join(f"{kind} {seconds * 1000:.0f} ms" for kind, seconds in took.items())
    ratio = took["tisfast"] / took["triton"] if len(took) == len(KINDS) else None
    shown = "" if ratio is None else f", ratio {ratio:.3f}" + (f" (bar {bar})" if bar is not None else "")
    print(f"{case:24} {figures}{shown}", flush=True)
    return int(ratio is not None and bar is not None and ratio > bar)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=LOADS)
    parser.add_argument("--servers", nargs="+", choices=KINDS, default=KINDS)
    return parser.parse_args()


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _compare(_chosen)))
