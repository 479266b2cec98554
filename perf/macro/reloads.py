"""Reload a model again and again under constant load: no request fails, and the slow ones are hardly slower.

    python -m perf.macro.reloads                          # 100 reloads over perf_analyzer at concurrency 16
    python -m perf.macro.reloads --reloads 10 --rounds 1
    python -m perf.macro.reloads --server triton

Each round measures without reloads and with them.  A reload is one of a changed model: its file is written anew, and
the next one begins `--every` seconds after the one before it did.
"""

from __future__ import annotations

import argparse
import http.client
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from perf.clients import Load, perf_analyzer
from perf.compare import complaining
from perf.figures import Figures
from perf.macro.growth import Held, held, report
from perf.oracle.launch import ROOT
from perf.oracle.server import Server

MODEL: Final = "add_sub"
EXAMPLES: Final = ROOT / "examples/models"
CONCURRENCY: Final = 16
RELOAD_SECONDS_MAX: Final = 30.0
WARM_RELOADS: Final = 3
WARM_SECONDS: Final = 1.0
WINDOWS: Final = 3
"""That perf_analyzer takes the mean of (perf.clients)."""
CALM_SECONDS: Final = 12.0
P99_SHARE_MAX: Final = 1.5
FAILURES: Final = "nv_inference_request_failure"


class Reloads(threading.Thread):
    """Reloads beside the load; `seconds`: of each, `wrong`: answers that were none."""

    def __init__(self, server: Server, file: Path, count: int, every: float) -> None:
        super().__init__(daemon=True)
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self._server, self._file, self._count, self._every = server, file, count, every

    def run(self) -> None:
        """All of them."""
        for _ in range(self._count):
            began = time.monotonic()
            status, text = reload(self._server, self._file)
            self.seconds.append(time.monotonic() - began)
            if status != http.HTTPStatus.OK:
                self.wrong.append(f"{status} {text[:200]!r}")
            time.sleep(max(0.0, self._every - self.seconds[-1]))


def reload(server: Server, file: Path) -> tuple[int, bytes]:
    """Change the model and load it; returns when the new copy serves."""
    changed = file.with_suffix(".new")
    changed.write_text(f"{file.read_text().split('# changed')[0]}# changed {time.monotonic_ns()}\n")
    changed.rename(file)
    return _ask(server.http, "POST", f"/v2/repository/models/{MODEL}/load", b"{}")


def failures(server: Server) -> float:
    """Requests that have failed so far, by the server's own count."""
    _, text = _ask(server.metrics, "GET", "/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.decode().splitlines() if line.startswith(FAILURES))


def _ask(port: int, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("localhost", port, timeout=RELOAD_SECONDS_MAX)
    try:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _load(server: Server, seconds: float) -> Figures:
    """One measurement; raises RunFailed when a request fails."""
    return perf_analyzer(Load("perf_analyzer", MODEL, CONCURRENCY), server.address, seconds, [server.pid])


def _round(server: Server, file: Path, options: argparse.Namespace) -> tuple[Figures, Figures, Reloads]:
    seconds = options.reloads * options.every / WINDOWS
    still = _load(server, seconds)
    reloads = Reloads(server, file, options.reloads, options.every)
    reloads.start()
    moved = _load(server, seconds)
    reloads.join()
    print(f"without reloads {still}; with {moved}; a reload {statistics.median(reloads.seconds):.3f} s", flush=True)
    return still, moved, reloads


def _run(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLES / MODEL, Path(folder, MODEL))
        file = Path(folder, MODEL, "1", "model.py")
        flags = ["--model-control-mode=explicit", f"--load-model={MODEL}"]
        with Server(options.server, [folder], flags) as server:
            _load(server, WARM_SECONDS)
            for _ in range(WARM_RELOADS):
                reload(server, file)
            warm = _at_rest(server)
            rounds = [_round(server, file, options) for _ in range(options.rounds)]
            return _verdict(server, rounds) | report(warm, _at_rest(server))


def _at_rest(server: Server) -> Held:
    time.sleep(CALM_SECONDS)
    return held(server)


def _verdict(server: Server, rounds: list[tuple[Figures, Figures, Reloads]]) -> int:
    seconds = sorted(each for _, _, reloads in rounds for each in reloads.seconds)
    wrong = [text for _, _, reloads in rounds for text in reloads.wrong]
    share = statistics.median(moved.p99 / still.p99 for still, moved, _ in rounds)
    failed = failures(server)
    print(f"{len(seconds)} reloads: {seconds[len(seconds) // 2]:.3f} s in the middle, {seconds[-1]:.3f} s at most")
    print(f"failed reloads {len(wrong)}, failed requests {failed:.0f}; p99 {share:.2f} times that without reloads")
    for text in wrong[:5]:
        print(f"WRONG: {text}")
    return 1 if wrong or failed or share > P99_SHARE_MAX else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=100, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=float, default=0.3, help="seconds from one reload to the next")
    parser.add_argument("--server", choices=("tisfast", "triton"), default="tisfast")
    return parser.parse_args()


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _run(_chosen)))
