"""A forest of XGBoost, one row a request, over HTTP: MLServer's xgboost runtime, tisfast, and the bare call.

    make bench-backends                                                 # this, and perf.macro.frameworks
    python -m perf.macro.forests --mlserver .venv/mlserver/bin/mlserver
    python -m perf.macro.forests                                        # without MLServer: tisfast and the bare call

All serve the same file, of 100 trees of depth 6, and are asked the same JSON by wrk.  Runs alternate, MLServer,
tisfast, MLServer, ...; medians are shown, and the ratios tisfast / MLServer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from perf.compare import complaining
from perf.figures import Figures, RunFailed, middle, ratio
from perf.oracle.server import Server
from perf.table import mark
from perf.wrk import Body, wrk_with

MODEL: Final = "forest"
TREES, DEPTH, COLUMNS, ROWS = 100, 6, 30, 4000
CONCURRENCY: Final = (1, 32)
P50_MOST, RATE_LEAST = {1: 0.15}, {32: 8.0}
START_SECONDS_MAX, STOP_SECONDS_MAX = 120, 20
CALLS: Final = 2000


def write_models(folder: Path) -> np.ndarray:
    """The forest for both servers, on made data; a row of it."""
    import xgboost  # noqa: PLC0415 - --help needs none

    chance = np.random.default_rng(1)
    rows = chance.standard_normal((ROWS, COLUMNS), np.float32)
    label = (rows[:, :5].sum(axis=1) + chance.standard_normal(ROWS) > 0).astype(int)
    model = xgboost.XGBClassifier(n_estimators=TREES, max_depth=DEPTH).fit(rows, label)
    for home in (folder / "tisfast" / MODEL / "1", folder / "mlserver"):
        home.mkdir(parents=True)
        model.save_model(home / "xgboost.json")
    runtime = {"implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./xgboost.json"}}
    settings = {"name": MODEL, **runtime}
    (folder / "mlserver/model-settings.json").write_text(json.dumps(settings))
    return rows[:1]


def request_of(row: np.ndarray) -> Body:
    """One row in JSON, which both read alike."""
    tensor = {"name": "input__0", "shape": list(row.shape), "datatype": "FP32", "data": row.ravel().tolist()}
    return Body(f"/v2/models/{MODEL}/infer", json.dumps({"inputs": [tensor]}).encode(), None)


@contextlib.contextmanager
def mlserver(program: str, folder: Path) -> Iterator[str]:
    """MLServer with its defaults; HOST:PORT.  Raises RunFailed when it does not get ready."""
    ports = [_free_port() for _ in range(3)]
    settings = dict(zip(("http_port", "grpc_port", "metrics_port"), ports, strict=True))
    (folder / "settings.json").write_text(json.dumps({**settings, "host": "127.0.0.1", "debug": False}))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([program, "start", str(folder)], stdout=log, stderr=log, cwd=folder)
        try:
            _wait_ready(process, f"http://127.0.0.1:{ports[0]}/v2/models/{MODEL}/ready")
            yield f"127.0.0.1:{ports[0]}"
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:  # it waits for requests of clients that have left
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RunFailed(f"MLServer ended with {process.returncode}")
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise RunFailed(f"MLServer is not ready after {START_SECONDS_MAX} s")


def bare(folder: Path, row: np.ndarray) -> Figures:
    """XGBoost's own call in this process, one thread."""
    import xgboost  # noqa: PLC0415 - as above

    booster = xgboost.Booster({"nthread": 1}, model_file=str(folder / "mlserver/xgboost.json"))
    took = []
    for _ in range(CALLS):
        began = time.perf_counter()
        booster.inplace_predict(row)
        took.append((time.perf_counter() - began) * 1e6)
    took.sort()
    return Figures(1e6 * len(took) / sum(took), took[len(took) // 2], took[len(took) * 99 // 100])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlserver", help="the program, in an environment with mlserver-xgboost")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as servers:
        folder = Path(name)
        row = write_models(folder)
        ours = servers.enter_context(Server("tisfast", [folder / "tisfast"]))
        sides = {"tisfast": f"localhost:{ours.http}"}
        if options.mlserver:
            theirs = servers.enter_context(mlserver(os.path.abspath(options.mlserver), folder / "mlserver"))
            sides = {"MLServer": theirs, **sides}
        print(f"{'':12} {'concurrency':>11} {'a second':>10} {'p50 us':>8} {'p99 us':>8}")
        _show("bare call", "", bare(folder, row))
        for concurrency in CONCURRENCY:
            _measure(sides, request_of(row), concurrency, options)
    return 0


def _measure(sides: dict[str, str], body: Body, concurrency: int, options: argparse.Namespace) -> None:
    runs: dict[str, list[Figures]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, address in sides.items():
            runs[side].append(wrk_with(address, body, concurrency, options.seconds))
    found = {side: middle(figures) for side, figures in runs.items()}
    for side, figures in found.items():
        _show(side, concurrency, figures)
    if "MLServer" not in found:
        return
    over = ratio(found["MLServer"], found["tisfast"])
    bars = [over.p50 <= P50_MOST.get(concurrency, over.p50), over.rate >= RATE_LEAST.get(concurrency, over.rate)]
    said = f"at most {P50_MOST[concurrency]} of the p50" if concurrency in P50_MOST else ""
    said += f"at least {RATE_LEAST[concurrency]} times the rate" if concurrency in RATE_LEAST else ""
    said += f": {mark(all(bars))}"
    print(f"{'ratio':12} {concurrency:>11} {over.rate:10.2f} {over.p50:8.3f} {over.p99:8.3f}  {said}")


def _show(side: str, concurrency: object, figures: Figures) -> None:
    print(f"{side:12} {concurrency!s:>11} {figures.rate:10.0f} {figures.p50:8.0f} {figures.p99:8.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(complaining(main))
