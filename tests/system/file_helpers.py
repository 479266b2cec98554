"""Files that are served as they lie; ONNX is needed."""

from __future__ import annotations

import os

import numpy as np

from tests.system import onnx_models as made
from tests.system.helpers import ADD_ONE

CODE = (
    ADD_ONE
    + """
    @classmethod
    def auto_complete_config(cls, config):
        config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "B", "data_type": "TYPE_FP32", "dims": [-1]})
        return config
"""
)


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
