"""Long tensors in clients' memory that must be copied: not by the event loop, and right all the same."""

from __future__ import annotations

import os
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.utils import serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

from tests.system.codec_helpers import ECHO, STREAM, codecs
from tests.system.helpers import CONFIG

# tritonclient leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FLOATS = np.arange(600_000, dtype=np.float32)  # 2.4 MB
TEXTS = np.array([b"abc%d" % i for i in range(150_000)], object)
SECONDS_MAX = 60


MIXED = """
input [
  { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "odd" data_type: TYPE_INT8 dims: [ -1 ] },
  { name: "wide" data_type: TYPE_FP64 dims: [ -1 ] }, { name: "long" data_type: TYPE_INT64 dims: [ -1 ] }
]
output [
  { name: "A" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "odd" data_type: TYPE_INT8 dims: [ -1 ] },
  { name: "wide" data_type: TYPE_FP64 dims: [ -1 ] }, { name: "long" data_type: TYPE_INT64 dims: [ -1 ] }
]
backend: "python"
model_transaction_policy { decoupled: True }
"""
RETURNED = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        for r in requests:
            tensors = [pb.Tensor(n, pb.get_input_tensor_by_name(r, n).as_numpy()) for n in ("A", "odd", "wide", "long")]
            r.get_response_sender().send(pb.InferenceResponse(tensors), pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@pytest.fixture
def server(serve, write_model):
    write_model("texts", ECHO, CONFIG.replace("TYPE_FP32", "TYPE_STRING"))
    write_model("floats", ECHO)
    write_model("stream", STREAM, CONFIG + "model_transaction_policy { decoupled: True }")
    write_model("mixed", RETURNED, MIXED)
    return serve("--allow-client-shm=true").ready()


@pytest.fixture
def put():
    """put(client, array): the region `in` that holds it; its length in bytes."""
    made = []

    def into(client, values):
        data = serialize_byte_tensor(values) if values.dtype == object else values
        nbytes = len(data.item()) if values.dtype == object else data.nbytes
        key = f"/tisfast_long_{os.getpid()}"
        made.append(shm.create_shared_memory_region("in", key, nbytes))
        shm.set_shared_memory_region(made[-1], [data])
        client.register_system_shared_memory("in", key, nbytes)
        return nbytes

    yield into
    for handle in made:
        shm.destroy_shared_memory_region(handle)


def given(package, values, nbytes):
    tensor = package.InferInput("A", list(values.shape), "BYTES" if values.dtype == object else "FP32")
    tensor.set_shared_memory("in", nbytes)
    return tensor


def connected(package, server):
    port = server.port if package is httpclient else server.says("is ready after")["grpc_port"]
    return package.InferenceServerClient(f"127.0.0.1:{port}")


@pytest.mark.parametrize("package", [httpclient, grpcclient])
def test_strings_are_copied_by_a_codec_process(server, put, package):
    client = connected(package, server)
    nbytes = put(client, TEXTS)
    assert codecs(server) == []
    for _ in range(2):
        answer = client.infer("texts", [given(package, TEXTS, nbytes)])
        np.testing.assert_array_equal(answer.as_numpy("B"), TEXTS)
    assert codecs(server)
    client.close()


def test_inputs_of_a_decoupled_model_are_copied_by_a_codec_process(server, put):
    client = connected(grpcclient, server)
    nbytes = put(client, FLOATS)
    came = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)))
    client.async_stream_infer("stream", [given(grpcclient, FLOATS, nbytes)])
    for i in range(3):
        result, error = came.get(timeout=SECONDS_MAX)
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("B"), FLOATS + i)
    assert codecs(server)
    client.stop_stream()
    client.close()


def test_tensors_that_lie_askew_beside_a_long_region_come_whole(server, put):
    """Where the event loop reads a message, it may move its tensors; what a codec process is to read stays as it is."""
    client = connected(grpcclient, server)
    tensors = [given(grpcclient, FLOATS, put(client, FLOATS))]
    beside = {
        "odd": np.arange(3, dtype=np.int8),
        "wide": np.linspace(-1, 1, 301),
        "long": np.arange(-200, 200, dtype=np.int64),
    }
    for name, values in beside.items():
        datatype = {"odd": "INT8", "wide": "FP64", "long": "INT64"}[name]
        tensors.append(grpcclient.InferInput(name, list(values.shape), datatype))
        tensors[-1].set_data_from_numpy(values)
    came = queue.Queue()
    client.start_stream(lambda result, error: came.put((result, error)))
    for _ in range(2):
        client.async_stream_infer("mixed", tensors)
        result, error = came.get(timeout=SECONDS_MAX)
        assert error is None
        for name, values in {"A": FLOATS, **beside}.items():
            np.testing.assert_array_equal(result.as_numpy(name), values)
    assert codecs(server)
    client.stop_stream()
    client.close()


@pytest.mark.parametrize("package", [httpclient, grpcclient])
def test_an_input_that_is_returned_is_copied_and_comes_back(server, put, package):
    client = connected(package, server)
    nbytes = put(client, FLOATS)
    for _ in range(2):
        answer = client.infer("floats", [given(package, FLOATS, nbytes)])
        np.testing.assert_array_equal(answer.as_numpy("B"), FLOATS)
    client.close()
