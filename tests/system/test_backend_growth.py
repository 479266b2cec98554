"""A hundred loads, replacements and unloads of a framework's model under load: all answers right, nothing grows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.system.backend_growth import ROWS, Adder, nothing_grows

SIDES = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "%s" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


def onnx_adder():
    onnx_models = pytest.importorskip("tests.system.onnx_models", reason="the onnx package makes these models")
    pytest.importorskip("onnxruntime")

    def write(folder, n):
        graph = onnx_models.model(
            [onnx_models.node("Add", ["x", "c"], ["y"])],
            [("x", "FP32", ["n", 1])],
            [("y", "FP32", ["n", 1])],
            [onnx_models.constant("c", np.full((1, 1), n, np.float32))],
        )
        (folder / "model.onnx").write_bytes(graph.SerializeToString())

    return Adder("model.onnx", write, lambda n: ROWS + n, 'backend: "onnxruntime" max_batch_size: 8' + SIDES % "y")


def torch_adder():
    torch = pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

    class Add(torch.nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n = float(n)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.n

    def write(folder, n):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is what Triton serves
            torch.jit.trace(Add(n), torch.zeros(2, 1)).save(str(folder / "model.pt"))

    return Adder("model.pt", write, lambda n: ROWS + n, 'backend: "pytorch" max_batch_size: 8' + SIDES % "OUTPUT__0")


@pytest.mark.parametrize("adder", [onnx_adder, torch_adder])
def test_a_hundred_loads_under_load_leave_nothing(serve, tmp_path, adder):
    nothing_grows(serve, adder(), "x", tmp_path / "models")
