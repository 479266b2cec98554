"""A plan that TensorRT itself builds here, served from a real GPU."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.system.array_calls import config_of, infer
from tests.system.conftest import connect  # noqa: F401 - fixture


def built(trt):
    """A plan that multiplies rows of four with a matrix, and takes up to 8 of them; and what it does."""
    weights = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    builder = trt.Builder(log := trt.Logger(trt.Logger.WARNING))
    network = builder.create_network(0)
    rows = network.add_input("X", trt.float32, (-1, 4))
    constant = network.add_constant((4, 4), trt.Weights(weights)).get_output(0)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(rows, none, constant, none).get_output(0)
    product.name = "Y"
    network.mark_output(product)
    profile = builder.create_optimization_profile()
    profile.set_shape("X", (1, 4), (4, 4), (8, 4))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None, log
    return bytes(plan), lambda values: values @ weights


@pytest.mark.parametrize("config", ["", "optimization { cuda { graphs: true } }"])
def test_a_plan_is_completed_and_run(real_cuda, serve, connect, tmp_path, config):  # noqa: F811
    trt = pytest.importorskip("tensorrt", reason="TensorRT is not installed")
    plan, expected = built(trt)
    folder = tmp_path / "models/m/1"
    folder.mkdir(parents=True)
    (folder / "model.plan").write_bytes(plan)
    (folder.parent / "config.pbtxt").write_text(f'backend: "tensorrt" {config}')
    client = connect(server := serve().ready(), grpcclient)
    assert config_of(server, "m")["max_batch_size"] == 8
    for rows in (1, 5, 8, 3):
        values = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        assert np.allclose(infer(client, "m", X=values)["Y"], expected(values), rtol=1e-2)
