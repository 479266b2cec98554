"""Files that are served as they lie; ONNX is needed."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.system import onnx_models as made
from tests.system.helpers import ADD_ONE, Server, until

CODE = ADD_ONE + """
    @classmethod
    def auto_complete_config(cls, config):
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "B", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
"""


@pytest.fixture
def serve_files(tmp_path):
    """Serve files, without a repository; afterwards nothing is left in the server's temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:
        started = []

        def start(*arguments):
            started.append(Server(None, tuple(map(str, arguments)), Path(scratch)))
            return started[-1]

        yield start
        for server in started:
            if server.process.poll() is None:
                server.end(signal.SIGKILL)
            server.process.stdout.close()
        until(lambda: not list(Path(scratch).glob("tisfast-*")), "the links are removed")


def ask(server, model, values):
    tensor = {"name": "X", "shape": [len(values), 1], "datatype": "FP32", "data": values}
    status, answer = server.ask("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})
    assert status == 200, answer
    return answer["outputs"][0]["data"]


def times(factor):
    """A graph that multiplies."""
    nodes = [made.node("Mul", ["X", "factor"], ["Y"])]
    value = [made.constant("factor", np.float32(factor))]
    return made.model(nodes, [("X", "FP32", ["n", 1])], [("Y", "FP32", ["n", 1])], value)


def write(path, factor):
    """As a careful program writes: beside it, and then in its place."""
    fresh = path.with_suffix(".tmp")
    fresh.write_bytes(times(factor).SerializeToString())
    os.replace(fresh, path)
