"""Memory, places and threads of PyTorch's models: what lies where, and what is left (make test-torch)."""

from __future__ import annotations

import os
import shutil
import warnings

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

torch = pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

from tests.system import torch_models as made  # noqa: E402 - what it needs is there

LARGE_BYTES = 20 << 20  # enough for weights to be shared


class Transposes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.t_()


class Quantized(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        codes = torch.quantize_per_tensor(torch.full((LARGE_BYTES,), 2.0), 1.0, 0, torch.quint8)
        self.register_buffer("codes", codes)
        self.register_buffer("plain", torch.ones(LARGE_BYTES // 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.codes[:1].dequantize() + self.plain[:1]


def test_an_input_that_is_transposed_in_place_is_sent_so(serve, tmp_path, ask):
    square = [made.tensor("x", dims="-1, -1")], [made.tensor("OUTPUT__0", dims="-1, -1")]
    made.save(Transposes(), tmp_path / "models/m", made.config(*square, ""))
    server = serve().ready()
    for shape in ((2, 3), (3, 3), (300, 200)):
        x = np.random.default_rng(1).standard_normal(shape, np.float32)
        found = ask(server, "m", x=x)["OUTPUT__0"]
        assert found.shape == x.T.shape and np.array_equal(found, x.T)


def test_quantized_buffers_stay_where_they_are(serve, tmp_path, ask):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.save(Quantized(), tmp_path / "models/m", made.config([made.tensor("x")], [made.tensor("OUTPUT__0")]))
    server = serve("--log-verbose=1", f"--environment-cache-dir={tmp_path / 'cache'}").ready()
    server.says("model 'm' shares 20.0 MiB")
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(ask(server, "m", x=x)["OUTPUT__0"], x * 3)


SUMS = """
import torch

class Sums(torch.nn.Module):
    def forward(self, x, before):
        total = x + before
        return total, total
"""
STATE = """
backend: "pytorch" runtime: "model.py" max_batch_size: 4
input [ { name: "X__0" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "TOTAL" data_type: TYPE_FP32 dims: [ 1 ] } ]
sequence_batching {
  direct { }
  state [ { input_name: "SUM__1" output_name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] } ]
}
"""


def test_a_module_in_a_file_may_have_state(serve, tmp_path, connect):
    folder = tmp_path / "models/sums"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(STATE)
    (folder / "1/model.py").write_text(SUMS)
    client = connect(serve().ready(), grpcclient)

    def send(sequence, value, **flags):
        tensor = grpcclient.InferInput("X__0", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
        return client.infer("sums", [tensor], sequence_id=sequence, **flags).as_numpy("TOTAL").item()

    assert send(7, 1, sequence_start=True) == 1 and send(8, 10, sequence_start=True) == 10
    assert send(7, 2) == 3 and send(8, 20) == 30
    assert send(7, 3, sequence_end=True) == 6


def test_a_compiled_package_leaves_no_files_and_tells_of_its_threads(serve, tmp_path, ask):
    if shutil.which("g++") is None:
        pytest.skip("g++ compiles packages")
    threads = torch.get_num_threads()
    torch.set_num_threads(7)
    try:
        folder = made.compile_package(torch.nn.Tanh(), tmp_path / "models/m", (torch.ones(8, 100_000),))
    finally:
        torch.set_num_threads(threads)
    tensors = [made.tensor("ARGS[0]", dims="8, 100000")], [made.tensor("OUTPUT__0", dims="8, 100000")]
    (folder / "config.pbtxt").write_text(made.config(*tensors, 'platform: "torch_aoti"'))
    server = serve().ready()
    server.says("was compiled for 7 threads, which each instance starts, where its share of the cores is")
    x = np.random.default_rng(1).standard_normal((8, 100_000), np.float32)
    assert np.allclose(ask(server, "m", **{"ARGS[0]": x})["OUTPUT__0"], np.tanh(x), atol=1e-5)
    assert [name for name in os.listdir(server.scratch) if "aoti" in name] == []
