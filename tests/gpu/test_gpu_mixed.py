"""Requests whose tensors lie on the GPU and in host memory, side by side."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.gpu.gpu_models import GPU, STAYS

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


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_each_input_and_output_lies_where_its_client_says(serve, write_model, connect, region, module):
    write_model("m", RETURNS_TWO, TWO + GPU + STAYS)
    client = connect(serve("--allow-client-shm=true").ready(), module)
    region(client, "X", X)
    region(client, "Y", Y)
    wanted = region(client, "wanted")
    for x_here, y_here, p_here, q_here in product([True, False], repeat=4):
        tensors = [module.InferInput("X", [1024], "FP32"), module.InferInput("Y", [512], "INT64")]
        for tensor, here, values in zip(tensors, (x_here, y_here), (X, Y), strict=True):
            if here:
                tensor.set_shared_memory(tensor.name(), 4096)
            else:
                tensor.set_data_from_numpy(values)
        outputs = [module.InferRequestedOutput("P"), module.InferRequestedOutput("Q")]
        for output, here, start in zip(outputs, (p_here, q_here), (0, 4096), strict=True):
            if here:
                output.set_shared_memory("wanted", 4096, start)
        wanted.write(bytes(8192))
        answer = client.infer("m", tensors, outputs=outputs)
        found = wanted.read(8192)
        assert (found[:4096] if p_here else answer.as_numpy("P").tobytes()) == X.tobytes()
        assert (found[4096:] if q_here else answer.as_numpy("Q").tobytes()) == Y.tobytes()
        if not (p_here or q_here):
            assert found == bytes(8192)
