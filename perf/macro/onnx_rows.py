"""Rows of perf.macro.frameworks that ONNX alone has: joined requests, loads, a small network beside the real Triton."""

from __future__ import annotations

import http.client
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from perf.clients import Address, Load
from perf.compare import Effort, address, pair
from perf.figures import RunFailed
from perf.macro.framework_floor import least
from perf.macro.framework_models import CLASSES, IMAGE, onnx_call, onnx_five_mb, onnx_network, onnx_small
from perf.macro.framework_rows import WARM_SECONDS, Row, Shape, alone, write
from perf.oracle.install import facts, install
from perf.oracle.server import Server
from perf.wrk import wrk

BATCH_MOST: Final = 8
CONNECTIONS: Final = 16
LOADS: Final = 9
SECONDS_MAX: Final = 60
BATCHES_LEAST, LOAD_MOST = 0.93, 1.3
BESIDE_TRITON: Final = {1: (0.35, 2.5), 16: (0.35, 3.5)}
"""By concurrency: p50 at most, rate at least."""
_SESSION: Final = """
import sys
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1] + "/model.onnx", providers=["CPUExecutionProvider"])
print("made", flush=True)
sys.stdin.read()
"""
IN_TRITON: Final = """
import os
import sys
sys.path.append({packages!r})
import onnxruntime
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        path = os.path.join(args["model_repository"], args["model_version"], "model.onnx")
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def execute(self, requests):
        answers = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            found = self.session.run(None, {{"INPUT0": array}})[0]
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", found)]))
        return answers
"""


def joined(effort: Effort, folder: Path) -> Iterator[Row]:
    """A network with dynamic batching, beside the bare session with batches of the same size."""
    models = folder / "joined"
    shape = Shape(", ".join(map(str, IMAGE[1:])), str(CLASSES), batch=BATCH_MOST, more="dynamic_batching { }")
    version = write(models / "network", "onnxruntime", onnx_network, shape)
    call, case = onnx_call(version), "network/bin" + "x".join(map(str, IMAGE))
    bare, served, sizes = [], [], []
    with Server("tisfast", [models]) as server:
        wrk(server.address, case, CONNECTIONS, WARM_SECONDS)
        for _ in range(effort.rounds):
            before = _counts(server, "network")
            served.append(wrk(server.address, case, CONNECTIONS, effort.seconds).rate)
            inferences, executions = (b - a for a, b in zip(before, _counts(server, "network"), strict=True))
            sizes.append(round(inferences / executions))
            array = np.ones((sizes[-1], *IMAGE[1:]), np.float32)
            bare.append(alone(call, array, effort.seconds).rate * sizes[-1])
    title = f"ONNX network, batches of {statistics.median(sizes):g}: bare session, served, concurrency {CONNECTIONS}"
    yield Row(f"{title}; rate", "/s", statistics.median(bare), statistics.median(served), BATCHES_LEAST, is_least=True)


def _counts(server: Server, model: str) -> tuple[int, int]:
    """Inferences and executions so far."""
    stats = json.loads(_request(server, "GET", f"/v2/models/{model}/stats"))["model_stats"][0]
    return stats["inference_count"], stats["execution_count"]


def load(effort: Effort, folder: Path) -> Iterator[Row]:
    """A load of a model of 5 MB, from the request to the answer, beside the making of a session of the same file."""
    models, took, bare, floor = folder / "loads", [], [], []
    version = write(models / "model", "onnxruntime", onnx_five_mb, Shape("1, 64", f"1, {CLASSES}"))
    flags = ["--model-control-mode=explicit", f"--environment-cache-dir={folder / 'cache'}"]
    with Server("tisfast", [models], flags, "/v2/health/live") as server:
        for _ in range(LOADS * effort.rounds + 1):  # the first one starts the nursery
            began = time.perf_counter()
            _request(server, "POST", "/v2/repository/models/model/load")
            took.append(time.perf_counter() - began)
            _request(server, "POST", "/v2/repository/models/model/unload")
            began = time.perf_counter()
            onnx_call(version)
            bare.append(time.perf_counter() - began)
            floor.append(_made_by_a_process(version))
    a, b, c = (statistics.median(each[1:]) * 1e3 for each in (bare, took, floor))
    yield Row("ONNX of 5 MB: session made, model loaded; median", "ms", a, b, LOAD_MOST, floor=c)


def _made_by_a_process(version: Path) -> float:
    """Seconds until a process of its own, which an isolated model needs, says that it has made the session."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", _SESSION, str(version)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        took = time.perf_counter() - began
        process.kill()
    return took


def _request(server: Server, verb: str, target: str) -> bytes:
    connection = http.client.HTTPConnection("localhost", server.http, timeout=SECONDS_MAX)
    try:
        connection.request(verb, target)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise RunFailed(f"{verb} {target} answered {answer.status} {text[:500]!r}")
    return text


def beside_triton(effort: Effort, folder: Path) -> Iterator[Row]:
    """A small network: called by a model of the real Triton's Python backend, and served here."""
    ours, theirs = folder / "ours", folder / "theirs"
    shape = Shape("1, 64", f"1, {CLASSES}")
    write(ours / "small", "onnxruntime", onnx_small, shape)
    version = write(theirs / "small", "python", onnx_small, shape)
    (version / "model.py").write_text(IN_TRITON.format(packages=_packages()))
    with (
        Server("triton", [theirs]) as triton,
        Server("tisfast", [ours]) as tisfast,
        least("ONNX", version, tisfast) as floor,
    ):
        for protocol, concurrency in itertools.product(("http", "grpc"), BESIDE_TRITON):
            wanted = Load("perf_analyzer", "small", concurrency, protocol)
            found = pair(wanted, (address(triton), address(tisfast)), effort)
            low = pair(wanted, (address(triton), Address(floor, "", ())), effort).b if protocol == "http" else None
            title = f"small ONNX network, {protocol} {concurrency}: Triton, tisfast"
            p50_most, rate_least = BESIDE_TRITON[concurrency]
            low_p50, low_rate = (low.p50 / 1e3, low.rate) if low else (0.0, 0.0)
            yield Row(f"{title}; p50", "ms", found.a.p50 / 1e3, found.b.p50 / 1e3, p50_most, floor=low_p50)
            yield Row(f"{title}; rate", "/s", found.a.rate, found.b.rate, rate_least, is_least=True, floor=low_rate)


def _packages() -> str:
    """The folder of this Python's packages, which Triton's Python can take ONNX Runtime from where it is as old."""
    import onnxruntime  # noqa: PLC0415 - of its own rows only

    theirs, own = facts(install() / "server/bin/python").version, ".".join(map(str, sys.version_info[:2]))
    if theirs != own:
        raise RunFailed(f"ONNX Runtime is here for Python {own}, and the real Triton runs Python {theirs}")
    return str(Path(onnxruntime.__file__).parents[1])
