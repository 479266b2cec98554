"""A hundred loads, replacements and unloads of a framework's model under load: all answers right, nothing grows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.system.backend_growth import ROWS, Adder, nothing_grows, sides


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

    return Adder("model.onnx", write, lambda n: ROWS + n, 'backend: "onnxruntime" max_batch_size: 8' + sides("y"))


def test_a_hundred_loads_of_onnx_runtimes_model_under_load_leave_nothing(serve, tmp_path):
    nothing_grows(serve, onnx_adder(), "x", tmp_path / "models")
