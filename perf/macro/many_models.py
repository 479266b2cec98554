"""Fifty small Python models: how long until the server is ready, and how much memory it takes, beside the real Triton.

    python -m perf.macro.many_models                # both servers, with and without auto-complete, three runs each
    python -m perf.macro.many_models --models 10 --runs 1

The models differ in nothing but their names.  Time counts from the start of the process to the first 200 of the health
route; memory is the proportional set (PSS) of the server and everything it started, after every model has answered.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from perf.compare import complaining
from perf.oracle.server import Kind, Server

MODELS: Final = 50
RUNS: Final = 3
SETTLE_SECONDS: Final = 1.0
"""Between the last answer and the look at the memory: what is freed on a timer is not what a server holds."""
KINDS: Final[tuple[Kind, ...]] = ("triton", "tisfast")
BARS: Final = {"auto-complete": (0.1, 0.3), "as written": (0.6, 0.3)}
"""Most that tisfast may take of Triton's time and memory."""
COMPLETE: Final = """
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "B", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(0)
        return config
"""
CODE: Final = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
%s
    def initialize(self, args):
        self.one = np.float32(1)

    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", a + self.one)]))
        return answers
"""
CONFIG: Final = """
backend: "python"
max_batch_size: 0
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
BODY: Final = json.dumps({"inputs": [{"name": "A", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]})


class Seen(NamedTuple):
    """Of one run: seconds to ready, bytes of memory when all have answered."""

    seconds: float
    pss_bytes: int


def write_model(folder: Path, name: str) -> None:
    """One model, complete and able to complete itself."""
    version = folder / name / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(CODE % COMPLETE)
    (folder / name / "config.pbtxt").write_text(CONFIG)


def infer(connection: http.client.HTTPConnection, name: str) -> None:
    """Ask a model once.  Raises RuntimeError when it does not answer as it should."""
    connection.request("POST", f"/v2/models/{name}/infer", BODY)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != http.HTTPStatus.OK or json.loads(text)["outputs"][0]["data"] != [2, 3, 4, 5]:
        raise RuntimeError(f"{name} answered {answer.status} {text[:200]!r}")


def run_once(kind: Kind, repository: Path, flags: list[str]) -> Seen:
    """Start a server, ask every model once, look at its memory."""
    with Server(kind, [repository], flags) as server:
        connection = http.client.HTTPConnection("localhost", server.http, timeout=30)
        for folder in sorted(repository.iterdir()):
            infer(connection, folder.name)
        connection.close()
        time.sleep(SETTLE_SECONDS)
        return Seen(server.start_seconds, server.pss_bytes())


def medians(runs: list[Seen]) -> Seen:
    """Each figure's by itself."""
    return Seen(statistics.median(run.seconds for run in runs), int(statistics.median(run.pss_bytes for run in runs)))


def _compare(options: argparse.Namespace) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for n in range(options.models):
            write_model(Path(scratch), f"m{n:03d}")
        for case, (time_max, memory_max) in BARS.items():
            flags = ["--disable-auto-complete-config"] if case == "as written" else []
            runs: dict[Kind, list[Seen]] = {kind: [] for kind in KINDS}
            for _ in range(options.runs):  # in turns: both meet the same machine
                for kind in options.servers:
                    runs[kind].append(run_once(kind, Path(scratch), flags))
            wrong += _report(case, {kind: medians(seen) for kind, seen in runs.items() if seen}, time_max, memory_max)
    return 1 if wrong else 0


def _report(case: str, seen: dict[Kind, Seen], time_max: float, memory_max: float) -> int:
    for kind, figures in seen.items():
        print(f"{case:14} {kind:8} ready after {figures.seconds:6.2f} s, {figures.pss_bytes / 1e6:7.1f} MB", flush=True)
    if len(seen) < len(KINDS):
        return 0
    seconds = seen["tisfast"].seconds / seen["triton"].seconds
    memory = seen["tisfast"].pss_bytes / seen["triton"].pss_bytes
    print(f"{case:14} ratio    {seconds:.3f} of the time (bar {time_max}), {memory:.3f} of the memory ({memory_max})")
    return int(seconds > time_max) + int(memory > memory_max)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--servers", nargs="+", choices=KINDS, default=KINDS)
    return parser.parse_args()


if __name__ == "__main__":
    _chosen = _options()
    sys.exit(complaining(lambda: _compare(_chosen)))
