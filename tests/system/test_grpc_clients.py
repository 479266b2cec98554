"""The real server spoken to by the real gRPC clients, as Triton's example programs do."""

from __future__ import annotations

import asyncio
import importlib
import queue

import grpc
import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from tests.system.client_helpers import CONFIG_NAMES, VALUES
from tests.system.helpers import ROOT

GATED = """
import os
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        while not os.path.exists(GATE):
            time.sleep(0.005)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
            for r in requests
        ]
"""


def address(server):
    """Where it serves gRPC, once it does."""
    return f"127.0.0.1:{server.said(lambda r: r.get('event') == 'ready', 'ready')['grpc_port']}"


@pytest.fixture
def examples(serve):
    """The examples' server, ready."""
    return serve("--allow-client-shm=true", repository=ROOT / "examples/models").ready()


@pytest.fixture
def connect():
    """Clients that are closed at the end of the test."""
    clients = []

    def made(server, **options):
        clients.append(grpcclient.InferenceServerClient(address(server), **options))
        return clients[-1]

    yield made
    for client in clients:
        client.close()


def given(name, values, datatype="FP32", client=grpcclient):
    tensor = client.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values)
    return tensor


A = np.array([1, 2, 3, 4], np.float32)
B = np.array([4, 3, 2, 1], np.float32)


def pair(client=grpcclient):
    return [given("INPUT0", A, client=client), given("INPUT1", B, client=client)]


def check(result):
    assert result.as_numpy("OUTPUT0").tolist() == [5, 5, 5, 5]
    assert result.as_numpy("OUTPUT1").tolist() == [-3, -1, 1, 3]


def test_health_and_metadata(examples, connect):
    client = connect(examples)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_sub", "1")
    assert client.get_server_metadata().name == "triton"
    assert [tensor.name for tensor in client.get_model_metadata("add_sub").inputs] == ["INPUT0", "INPUT1"]
    assert client.get_model_config("add_sub", as_json=True)["config"]["name"] == "add_sub"
    assert "add_sub" in [model.name for model in client.get_model_repository_index().models]
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'x' is not found") as error:
        client.get_model_metadata("x")
    assert error.value.status() == "StatusCode.NOT_FOUND"


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_inference_and_its_statistics(examples, connect, compression):
    client = connect(examples)
    for _ in range(3):
        check(client.infer("add_sub", pair(), request_id="1", compression_algorithm=compression))
    result = client.infer("add_sub", pair(), outputs=[grpcclient.InferRequestedOutput("OUTPUT1")])
    assert [output.name for output in result.get_response().outputs] == ["OUTPUT1"]
    stats = client.get_inference_statistics("add_sub").model_stats[0]
    assert (stats.inference_count, stats.inference_stats.success.count) == (4, 4)


def test_callbacks(examples, connect):
    client, done = connect(examples), queue.Queue()
    calls = [client.async_infer("add_sub", pair(), lambda result, error: done.put((result, error))) for _ in range(20)]
    for _ in calls:
        result, error = done.get(timeout=60)
        assert error is None
        check(result)


def test_every_data_type(serve, connect):
    client = connect(serve("--exit-on-error=false", repository=ROOT / "tests/oracle/models").ready())
    for datatype, values in VALUES.items():
        name = CONFIG_NAMES.get(datatype, datatype)
        wanted = [grpcclient.InferRequestedOutput(f"OUT_{name}")]
        result = client.infer("types", [given(f"IN_{name}", values, datatype)], outputs=wanted)
        np.testing.assert_array_equal(result.as_numpy(f"OUT_{name}"), values)


def test_large_tensors_and_keepalive(examples, connect):
    options = grpcclient.KeepAliveOptions(keepalive_time_ms=1000, keepalive_permit_without_calls=True)
    client = connect(examples, keepalive_options=options)
    values = np.random.default_rng(1).random(4 << 20, np.float32)
    result = client.infer("identity_fp32", [given("INPUT0", values)])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


def test_channel_arguments_of_the_callers_own(examples, connect):
    client = connect(examples, channel_args=[("grpc.max_receive_message_length", 1 << 24)])
    check(client.infer("add_sub", pair()))


def test_a_stream(examples, connect):
    client, got = connect(examples), queue.Queue()
    client.start_stream(lambda result, error: got.put((result, error)))
    for i in range(10):
        client.async_stream_infer("add_sub", pair(), request_id=str(i))
    client.async_stream_infer("nobody", pair(), request_id="bad")
    client.async_stream_infer("add_sub", pair(), request_id="last")
    answers = [got.get(timeout=60) for _ in range(12)]
    client.stop_stream()
    assert [result.get_response().id for result, error in answers if error is None] == [*map(str, range(10)), "last"]
    assert [error.message() for _, error in answers if error is not None] == [
        "Request for unknown model: 'nobody' is not found"
    ]


def test_a_client_side_timeout_and_cancellation(serve, write_model, connect, tmp_path):
    gate = tmp_path / "gate"
    write_model("gated", GATED.replace("GATE", repr(str(gate))))
    server = serve().ready()
    client = connect(server)
    with pytest.raises(InferenceServerException) as error:
        client.infer("gated", [given("A", A)], client_timeout=0.05)
    assert error.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    done = queue.Queue()
    call = client.async_infer("gated", [given("A", A)], lambda result, error: done.put(error))
    call.cancel()
    assert "cancelled" in done.get(timeout=60).message().lower()
    gate.touch()
    assert client.infer("gated", [given("A", A)]).as_numpy("B").tolist() == A.tolist()


def test_the_asyncio_client(examples):
    async def talk():
        async with aio.InferenceServerClient(address(examples)) as client:
            assert await client.is_server_ready()
            for result in await asyncio.gather(*(client.infer("add_sub", pair(aio)) for _ in range(10))):
                check(result)

            async def requests():
                for i in range(5):
                    yield {"model_name": "add_sub", "inputs": pair(aio), "request_id": str(i)}

            ids = []
            async for result, error in client.stream_infer(requests()):
                assert error is None
                ids.append(result.get_response().id)
            assert ids == ["0", "1", "2", "3", "4"]

    asyncio.run(talk())


def test_system_shared_memory(examples, connect, tmp_path):
    client, name = connect(examples), f"/tisfast_{tmp_path.name}"
    region = shm.create_shared_memory_region("r", name, 64)
    try:
        shm.set_shared_memory_region(region, [A, B])
        client.register_system_shared_memory("r", name, 64)
        assert client.get_system_shared_memory_status().regions["r"].byte_size == 64
        inputs = [grpcclient.InferInput(f"INPUT{i}", [4], "FP32") for i in range(2)]
        outputs = [grpcclient.InferRequestedOutput(f"OUTPUT{i}") for i in range(2)]
        for i in range(2):
            inputs[i].set_shared_memory("r", 16, 16 * i)
            outputs[i].set_shared_memory("r", 16, 32 + 16 * i)
        for _ in range(2):
            result = client.infer("add_sub", inputs, outputs=outputs)
        assert list(result.get_response().raw_output_contents) == [b"", b""]
        assert shm.get_contents_as_numpy(region, np.float32, [4], 32).tolist() == [5, 5, 5, 5]
        assert shm.get_contents_as_numpy(region, np.float32, [4], 48).tolist() == [-3, -1, 1, 3]
        client.unregister_system_shared_memory("r")
        with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'r'"):
            client.infer("add_sub", inputs)
    finally:
        shm.destroy_shared_memory_region(region)


def test_models_are_controlled_by_calls_in_explicit_mode_only(examples, connect):
    client = connect(examples)
    for call in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException, match="explicit model load / unload is not allowed") as error:
            call("add_sub")
        assert error.value.status() == "StatusCode.UNAVAILABLE"


def test_grpcs_own_health_and_reflection_clients(examples):
    health = importlib.import_module("grpc_health.v1.health_pb2")
    health_grpc = importlib.import_module("grpc_health.v1.health_pb2_grpc")
    reflection = importlib.import_module("grpc_reflection.v1alpha.proto_reflection_descriptor_database")
    with grpc.insecure_channel(address(examples)) as channel:
        stub = health_grpc.HealthStub(channel)
        assert stub.Check(health.HealthCheckRequest(), timeout=60).status == 1
        watch = stub.Watch(health.HealthCheckRequest(), timeout=60)
        assert next(watch).status == 1
        watch.cancel()
        database = reflection.ProtoReflectionDescriptorDatabase(channel)
        assert "inference.GRPCInferenceService" in database.get_services()
        assert database.FindFileContainingSymbol("inference.ModelInferRequest").name == "grpc_service.proto"
