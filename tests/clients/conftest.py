"""A server with the models that the public clients ask, and their programs as processes."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.environments import ENVIRONMENTS
from tests.system.conftest import Server, serve, write_model  # noqa: F401 - fixtures

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_SECONDS_MAX = 180
FOLDER = os.environ.get("TISFAST_CLIENTS", "")
MODELS = ("upper", "count", "sum")  # programs wait for the last one, and then ask all
SUM = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        sums = [self.array(r, "A") + self.array(r, "B") for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SUM", value)]) for value in sums]

    def array(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy()
"""
SUM_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "B" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "SUM" data_type: TYPE_FP32 dims: [ 2 ] } ]
dynamic_batching { }
"""
UPPER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("UPPER", self.upper(r))]) for r in requests]

    def upper(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        upper = [each.decode().upper().encode() for each in texts.reshape(-1)]
        return np.array(upper, dtype=object).reshape(texts.shape)
"""
UPPER_CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "UPPER" data_type: TYPE_STRING dims: [ 1 ] } ]
"""
COUNT = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for i in range(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0]):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([i], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
COUNT_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "I" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""


@pytest.fixture
def server(serve, write_model) -> Server:  # noqa: F811
    """A server whose models are there and not loaded."""
    write_model("sum", SUM, SUM_CONFIG)
    write_model("upper", UPPER, UPPER_CONFIG)
    write_model("count", COUNT, COUNT_CONFIG)
    return serve("--model-control-mode=explicit").ready()


@pytest.fixture
def addresses(server) -> list[str]:
    """HOST:PORT of HTTP, gRPC and metrics."""
    ready = server.said(lambda record: record.get("event") == "ready", "ready")
    return [f"127.0.0.1:{ready[port]}" for port in ("http_port", "grpc_port", "metrics_port")]


def load(server: Server) -> None:
    """Load all models."""
    for name in MODELS:
        status, answer = server.ask("POST", f"/v2/repository/models/{name}/load", {})
        assert status == 200, answer


class Program:
    """A client's program as a process.  What it wrote is in the error when it fails."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **env}
        )
        self.lines: list[str] = []
        self._bound = threading.Timer(PROGRAM_SECONDS_MAX, self.process.kill)
        self._bound.start()

    def says(self, text: str) -> None:
        """Read until a line is `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if line.strip() == text:
                return
        raise AssertionError(f"the program ended before it said {text!r}:\n" + "".join(self.lines))

    def ends_well(self) -> str:
        """Wait for its end; returns what it wrote."""
        assert self.process.stdout is not None
        self.lines += self.process.stdout
        code = self.process.wait()
        assert code == 0, f"exit code {code} (killed after {PROGRAM_SECONDS_MAX} s if -9):\n" + "".join(self.lines)
        return "".join(self.lines)

    def end(self) -> None:
        """Let nothing of it stay."""
        self._bound.cancel()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def run() -> Iterator:
    """Start a program in a client's environment: run(environment, file or command, *arguments).

    file: one of `programs`, run by the environment's interpreter; else a command of the environment.
    """
    started: list[Program] = []

    def start(name: str, what: str, *arguments: str) -> Program:
        folder = Path(FOLDER, name)
        if not FOLDER or not (folder / "installed.txt").exists():
            pytest.skip(f"`make test-clients` makes the environment of {name}")
        environment = ENVIRONMENTS[name]
        file = PROGRAMS / what
        command = [*environment.interpreter(folder), str(file)] if file.exists() else [str(folder / "bin" / what)]
        started.append(Program([*command, *arguments], {"PYTHONPATH": "", **environment.variables(folder)}))
        return started[-1]

    yield start
    for program in started:
        program.end()
