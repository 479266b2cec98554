"""Requests whose tensors lie on the GPU and in host memory, side by side."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_models import CONFIG, GPU, STAYS, WHERE, copies
from tests.gpu.gpu_models import asked as asked_of_region

TWO = """
backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "Y" data_type: TYPE_INT64 dims: [ -1 ] } ]
output [ { name: "P" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "Q" data_type: TYPE_INT64 dims: [ -1 ] } ]
"""
RETURNS_TWO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.given(r, "X", "P"), self.given(r, "Y", "Q")]) for r in requests]

    def given(self, request, name, output):
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor.is_cpu():
            return pb_utils.Tensor(output, tensor.as_numpy())
        return pb_utils.Tensor.from_dlpack(output, tensor)
"""
"""It returns both inputs as they are."""
X, Y = np.arange(1024, dtype=np.float32), np.arange(512, dtype=np.int64)


ENSEMBLE = """
platform: "ensemble"
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "Y" data_type: TYPE_INT64 dims: [ -1 ] } ]
output [ { name: "P" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "Q" data_type: TYPE_INT64 dims: [ -1 ] } ]
ensemble_scheduling {
  step {
    model_name: "m" model_version: -1 input_map { key: "X" value: "X" } input_map { key: "Y" value: "Y" }
    output_map { key: "P" value: "x" } output_map { key: "Q" value: "y" }
  }
  step {
    model_name: "m" model_version: -1 input_map { key: "X" value: "x" } input_map { key: "Y" value: "y" }
    output_map { key: "P" value: "P" } output_map { key: "Q" value: "Q" }
  }
}
"""
ON_GPU = {"X": True, "Y": True}


@pytest.fixture
def asked(serve, write_model, connect, region):
    """asked(model, where, module): ask it, with the tensors whose names are true in `where` in regions; what came is
    looked at.
    """
    write_model("m", RETURNS_TWO, TWO + GPU + STAYS)
    (write_model("e", "", ENSEMBLE) / "1/model.py").unlink()
    server = serve("--allow-client-shm=true").ready()
    client = connect(server)
    region(client, "X", X)
    region(client, "Y", Y)
    wanted = region(client, "wanted")

    def ask(model, where, module=tritonclient.http):
        tensors = [module.InferInput("X", [1024], "FP32"), module.InferInput("Y", [512], "INT64")]
        for tensor, values in zip(tensors, (X, Y), strict=True):
            if where[tensor.name()]:
                tensor.set_shared_memory(tensor.name(), 4096)
            else:
                tensor.set_data_from_numpy(values)
        outputs = [module.InferRequestedOutput("P"), module.InferRequestedOutput("Q")]
        for output, start in zip(outputs, (0, 4096), strict=True):
            if where[output.name()]:
                output.set_shared_memory("wanted", 4096, start)
        wanted.write(bytes(8192))
        asking = client if module is tritonclient.http else connect(server, module)
        answer = asking.infer(model, tensors, outputs=outputs)
        found = wanted.read(8192)
        assert (found[:4096] if where["P"] else answer.as_numpy("P").tobytes()) == X.tobytes()
        assert (found[4096:] if where["Q"] else answer.as_numpy("Q").tobytes()) == Y.tobytes()

    return ask


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
@pytest.mark.parametrize("model", ["m", "e"])
def test_each_input_and_output_lies_where_its_client_says(asked, module, model):
    for where in product([True, False], repeat=4):
        asked(model, dict(zip("XYPQ", where, strict=True)), module)


@pytest.mark.parametrize("model", ["m", "e"])
def test_where_one_output_goes_to_the_client_the_other_one_is_copied_on_the_gpu_all_the_same(asked, gpu, model):
    before = gpu.counted()
    asked(model, {**ON_GPU, "P": False, "Q": True})
    # the client's own process has made one of each way, to look at its region
    assert copies(gpu, before) == [1, 2, 1]


def test_an_input_without_elements_is_in_host_memory(serve, write_model, connect, region):
    write_model("m", WHERE, CONFIG + GPU + STAYS)
    server = serve("--allow-client-shm=true").ready()
    client = connect(server)
    region(client, "given", X)
    answer = client.infer("m", **asked_of_region(tritonclient.http, nbytes=0))
    assert answer.as_numpy("B").tolist() == []
    server.says("on the CPU: [True]")
