"""What Triton's example clients do, written anew, over both protocols: always run, unlike test_client_examples.py."""

from __future__ import annotations

import queue
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme
from tritonclient import grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, serialize_byte_tensor
from tritonclient.utils import shared_memory as shm

from tests.system.client_models import SERVED, repository
from tests.system.helpers import Server

# tritonclient leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CLIENTS = {"http": httpclient, "grpc": grpcclient}
COUNTING = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), np.int32)
SECONDS_MAX = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    """The clients' models."""
    models = repository(tmp_path_factory.mktemp("models"), SERVED)
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:
        server = Server(models, ("--allow-client-shm=true",), Path(scratch)).ready()
        yield server
        server.end()
        server.process.stdout.close()


def address(server: Server, protocol: str) -> str:
    """Where it serves a protocol."""
    return f"localhost:{server.said(lambda r: r.get('event') == 'ready', 'ready')[protocol + '_port']}"


@pytest.fixture(params=CLIENTS)
def protocol(request) -> str:
    """Each protocol."""
    return request.param


@pytest.fixture
def client(server, protocol):
    """A client of each protocol, with concurrency for callbacks."""
    options = {"concurrency": 4} if protocol == "http" else {}
    client = CLIENTS[protocol].InferenceServerClient(address(server, protocol), **options)
    yield client
    client.close()


def words(numbers: np.ndarray) -> np.ndarray:
    """Numbers written out."""
    return np.array([str(each).encode() for each in numbers.flatten()], object).reshape(numbers.shape)


def pair(protocol: str, a=COUNTING, b=ONES, datatype: str = "INT32") -> list:
    """The two inputs of the simple models."""
    tensors = [CLIENTS[protocol].InferInput(name, [1, 16], datatype) for name in ("INPUT0", "INPUT1")]
    for tensor, values in zip(tensors, (a, b), strict=True):
        tensor.set_data_from_numpy(values)
    return tensors


def check(result) -> None:
    """Sum and difference."""
    assert result.as_numpy("OUTPUT0").astype(np.int32).tolist() == (COUNTING + ONES).tolist()
    assert result.as_numpy("OUTPUT1").astype(np.int32).tolist() == (COUNTING - ONES).tolist()


def test_infer(client, protocol):
    outputs = [CLIENTS[protocol].InferRequestedOutput(name) for name in ("OUTPUT0", "OUTPUT1")]
    check(client.infer("simple", pair(protocol), outputs=outputs, headers={"test": "1"}, request_id="a"))
    check(client.infer("simple", pair(protocol)))
    assert client.get_inference_statistics("simple")
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'wrong_model_name' is not found"):
        client.infer("wrong_model_name", pair(protocol))
    with pytest.raises(InferenceServerException, match="requested model 'wrong_model_name' is not available"):
        client.get_inference_statistics("wrong_model_name")


def test_strings(client, protocol):
    check(client.infer("simple_string", pair(protocol, words(COUNTING), words(ONES), "BYTES")))
    texts = np.array([[b"", b"\x00\xff", "\N{SNOWMAN}".encode(), b"a" * 1000]], object)
    tensor = CLIENTS[protocol].InferInput("INPUT0", [1, 4], "BYTES")
    tensor.set_data_from_numpy(texts)
    assert client.infer("simple_identity", [tensor]).as_numpy("OUTPUT0").tolist() == texts.tolist()


def test_small_integers(client, protocol):
    check(client.infer("simple_int8", pair(protocol, COUNTING.astype(np.int8), ONES.astype(np.int8), "INT8")))


def test_many_at_once(client, protocol):
    if protocol == "http":
        for pending in [client.async_infer("simple", pair(protocol)) for _ in range(8)]:
            check(pending.get_result())
        return
    answers: queue.Queue = queue.Queue()
    for _ in range(8):
        client.async_infer("simple", pair(protocol), lambda result, error: answers.put((result, error)))
    for _ in range(8):
        result, error = answers.get(timeout=SECONDS_MAX)
        assert error is None
        check(result)


def test_inputs_and_outputs_used_again(client, protocol):
    """Data first in the request, then in shared memory, then in the request again, with the same objects."""
    name, key = f"again{uuid.uuid4().hex}", f"/again{uuid.uuid4().hex}"
    region = shm.create_shared_memory_region(name, key, 128)
    try:
        client.register_system_shared_memory(name, key, 128)
        inputs = pair(protocol)
        outputs = [CLIENTS[protocol].InferRequestedOutput(each) for each in ("OUTPUT0", "OUTPUT1")]
        check(client.infer("simple", inputs, outputs=outputs))
        shm.set_shared_memory_region(region, [COUNTING])
        inputs[0].set_shared_memory(name, 64)
        outputs[1].set_shared_memory(name, 64, offset=64)
        result = client.infer("simple", inputs, outputs=outputs)
        assert result.as_numpy("OUTPUT0").tolist() == (COUNTING + ONES).tolist()
        found = shm.get_contents_as_numpy(region, np.int32, [1, 16], offset=64)
        assert found.tolist() == (COUNTING - ONES).tolist()
        inputs[0].set_data_from_numpy(COUNTING)
        outputs[1].unset_shared_memory()
        check(client.infer("simple", inputs, outputs=outputs))
    finally:
        client.unregister_system_shared_memory(name)
        shm.destroy_shared_memory_region(region)


def test_strings_in_shared_memory(client, protocol):
    data = [serialize_byte_tensor(words(each)) for each in (COUNTING, ONES)]
    sizes = [len(each.item()) for each in data]
    name, key = f"words{uuid.uuid4().hex}", f"/words{uuid.uuid4().hex}"
    region = shm.create_shared_memory_region(name, key, sum(sizes))
    try:
        client.register_system_shared_memory(name, key, sum(sizes))
        shm.set_shared_memory_region(region, data)
        inputs = pair(protocol, words(COUNTING), words(ONES), "BYTES")
        inputs[0].set_shared_memory(name, sizes[0])
        inputs[1].set_shared_memory(name, sizes[1], offset=sizes[0])
        check(client.infer("simple_string", inputs))
    finally:
        client.unregister_system_shared_memory(name)
        shm.destroy_shared_memory_region(region)


def test_classes_of_an_image(client, protocol):
    image = CLIENTS[protocol].InferInput("data_0", [3, 224, 224], "FP32")
    image.set_data_from_numpy(np.ones((3, 224, 224), np.float32))
    wanted = CLIENTS[protocol].InferRequestedOutput("fc6_1", class_count=2)
    result = client.infer("densenet_onnx", [image], outputs=[wanted])
    assert result.as_numpy("fc6_1").tolist() == [b"1.000000:1:bright", b"0.000000:0:dark"]


def test_several_answers_to_one_request(server):
    numbers = np.arange(100, 105, dtype=np.int32)
    given = {"IN": numbers, "DELAY": np.full(5, 1, np.uint32), "WAIT": np.array([1], np.uint32)}
    inputs = []
    for name, values in given.items():
        inputs.append(grpcclient.InferInput(name, list(values.shape), str(values.dtype).upper()))
        inputs[-1].set_data_from_numpy(values)
    answers: queue.Queue = queue.Queue()
    with grpcclient.InferenceServerClient(address(server, "grpc")) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("repeat_int32", inputs, outputs=[grpcclient.InferRequestedOutput("OUT")])
        for number in numbers:
            result, error = answers.get(timeout=SECONDS_MAX)
            assert error is None
            assert result.as_numpy("OUT").tolist() == [number]


@pytest.mark.parametrize(("model", "datatype", "field", "convert"), [
    ("simple", "INT32", "int_contents", int), ("simple_int8", "INT8", "int_contents", int),
    ("simple_string", "BYTES", "bytes_contents", lambda each: str(each).encode()),
])  # fmt: skip
def test_typed_contents_through_the_bare_stub(server, model, datatype, field, convert):
    inputs = [
        {"name": name, "datatype": datatype, "shape": [1, 16], "contents": {field: list(map(convert, values[0]))}}
        for name, values in (("INPUT0", COUNTING), ("INPUT1", ONES))
    ]
    request = service_pb2.ModelInferRequest(model_name=model, id="my request id", inputs=inputs)
    with grpc.insecure_channel(address(server, "grpc")) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        check(grpcclient.InferResult(stub.ModelInfer(request)))
        request.raw_input_contents.append(bytes(32))
        with pytest.raises(grpc.RpcError, match="contents field must not be specified when using raw_input_contents"):
            stub.ModelInfer(request)


def test_both_protocols_over_tls(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = (f"http-ssl-cert={tmp_path}/cert.pem", f"http-ssl-key={tmp_path}/key.pem", "grpc-use-ssl=true",
             f"grpc-server-cert={tmp_path}/cert.pem", f"grpc-server-key={tmp_path}/key.pem")  # fmt: skip
    (tmp_path / "models").mkdir()
    with tempfile.TemporaryDirectory(prefix="tf") as scratch:
        models = repository(tmp_path / "models", ("simple",))
        server = Server(models, tuple(f"--{each}" for each in files), Path(scratch)).ready()
        options = {"ssl": True, "ssl_options": {"ca_certs": str(tmp_path / "ca.pem")}}
        with httpclient.InferenceServerClient(address(server, "http"), **options) as client:
            check(client.infer("simple", pair("http")))
        options = {"ssl": True, "root_certificates": str(tmp_path / "ca.pem")}
        with grpcclient.InferenceServerClient(address(server, "grpc"), **options) as client:
            check(client.infer("simple", pair("grpc")))
        assert server.end() == 0
        server.process.stdout.close()
