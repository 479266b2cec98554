"""The real server spoken to by the real tritonclient, synchronous and asyncio; nothing here knows our codecs."""

import asyncio

import numpy as np
import pytest
from tritonclient import http as httpclient
from tritonclient.http import aio
from tritonclient.utils import InferenceServerException

from tests.system.client_helpers import CONFIG_NAMES, VALUES
from tests.system.helpers import ROOT, until

# tritonclient 2.73 leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def examples(serve_once):
    """The examples' server, ready."""
    return serve_once(repository=ROOT / "examples/models").ready()


@pytest.fixture(scope="module")
def types(serve_once):
    """A server of the model that has every data type, ready."""
    return serve_once("--exit-on-error=false", repository=ROOT / "tests/oracle/models").ready()


@pytest.fixture
def connect():
    """Clients that are closed at the end of the test."""
    clients = []

    def to(server, **options):
        clients.append(httpclient.InferenceServerClient(f"127.0.0.1:{server.port}", **options))
        return clients[-1]

    yield to
    for client in clients:
        client.close()


def tensor(name, values, datatype, *, binary=True, module=httpclient):
    made = module.InferInput(name, list(values.shape), datatype)
    return made.set_data_from_numpy(values, binary_data=binary)


def add_sub(values, **options):
    return [tensor(name, values, "FP32", **options) for name in ("INPUT0", "INPUT1")]


def test_health_and_metadata(examples, connect):
    client = connect(examples)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_sub")
    assert client.is_model_ready("add_sub", "1")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata()["name"] == "triton"
    assert [each["name"] for each in client.get_model_metadata("add_sub")["inputs"]] == ["INPUT0", "INPUT1"]
    assert client.get_model_config("digits")["max_batch_size"] == 32
    assert {each["name"] for each in client.get_model_repository_index()} == {"add_sub", "digits", "identity_fp32"}


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
def test_binary_and_json_in_each_direction(examples, connect, sent, wanted):
    values = np.arange(4, dtype=np.float32)
    outputs = [httpclient.InferRequestedOutput(name, binary_data=wanted) for name in ("OUTPUT1", "OUTPUT0")]
    result = connect(examples).infer("add_sub", add_sub(values, binary=sent), outputs=outputs, request_id="one")
    assert result.get_response()["id"] == "one"
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values + values)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), values - values)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compression_both_ways(examples, connect, coding):
    values = np.arange(100_000, dtype=np.float32)
    options = {"request_compression_algorithm": coding, "response_compression_algorithm": coding}
    result = connect(examples).infer("identity_fp32", [tensor("INPUT0", values, "FP32")], **options)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


@pytest.mark.parametrize("datatype", sorted(VALUES))
def test_every_data_type_comes_back_as_it_was(types, connect, datatype):
    values, name = VALUES[datatype], CONFIG_NAMES.get(datatype, datatype)
    result = connect(types).infer("types", [tensor(f"IN_{name}", values, datatype)])
    np.testing.assert_array_equal(result.as_numpy(f"OUT_{name}"), values)


@pytest.mark.parametrize("elements", [0, 1, 150_528, 4_194_304])
def test_every_size_comes_back_as_it_was(examples, connect, elements):
    values = np.random.default_rng(7).random(elements, dtype=np.float32)
    result = connect(examples).infer("identity_fp32", [tensor("INPUT0", values, "FP32")])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


def test_many_requests_at_once(examples, connect):
    client = connect(examples, concurrency=8)
    values = [np.full(4, i, np.float32) for i in range(200)]
    pending = [client.async_infer("add_sub", add_sub(each)) for each in values]
    for each, request in zip(values, pending, strict=True):
        np.testing.assert_array_equal(request.get_result().as_numpy("OUTPUT0"), 2 * each)


def test_dynamic_batching_shows_in_the_statistics(examples, connect):
    image = np.zeros((1, 8, 8), np.uint8)

    async def all_at_once():
        async with aio.InferenceServerClient(f"127.0.0.1:{examples.port}") as client:
            each = [tensor("IMAGE", image, "UINT8", module=aio)]
            await asyncio.gather(*(client.infer("digits", each) for _ in range(64)))

    def counted():
        (stats,) = connect(examples).get_inference_statistics("digits")["model_stats"]
        batches = sum(each["compute_infer"]["count"] for each in stats.get("batch_stats", []))
        succeeded = stats["inference_stats"]["success"].get("count", 0)
        return [stats.get("inference_count", 0), succeeded, stats.get("execution_count", 0), batches]

    before = counted()
    asyncio.run(all_at_once())
    requests, succeeded, executions, batches = (now - then for now, then in zip(counted(), before, strict=True))
    assert requests == succeeded == 64
    assert executions == batches < 64


@pytest.mark.parametrize(
    ("model", "inputs", "status", "says"),
    [
        ("nobody", [("INPUT0", (4,), "FP32")], "404", "Request for unknown model: 'nobody' is not found"),
        ("add_sub", [("INPUT0", (4,), "FP32")], "400", "expected 2 inputs but got 1 inputs for model 'add_sub'"),
        ("identity_fp32", [("NOBODY", (4,), "FP32")], "400", "unexpected inference input 'NOBODY'"),
        (
            "identity_fp32",
            [("INPUT0", (4,), "FP64")],
            "400",
            "data-type is 'FP64', but model 'identity_fp32' expects 'FP32'",
        ),
        ("identity_fp32", [("INPUT0", (2, 2), "FP32")], "400", "unexpected shape for input 'INPUT0'"),
    ],
)
def test_errors_reach_the_client_with_status_and_reason(examples, connect, model, inputs, status, says):
    numpy = {"FP32": np.float32, "FP64": np.float64}
    wrong = [tensor(name, np.zeros(shape, numpy[datatype]), datatype) for name, shape, datatype in inputs]
    with pytest.raises(InferenceServerException) as caught:
        connect(examples).infer(model, wrong)
    assert caught.value.status() == status
    assert says in caught.value.message()


def test_asyncio_client(examples):
    async def scenario():
        async with aio.InferenceServerClient(f"127.0.0.1:{examples.port}") as client:
            assert await client.is_server_ready()
            values = [np.full(4, i, np.float32) for i in range(50)]
            inputs = [add_sub(each, module=aio) for each in values]
            results = await asyncio.gather(*(client.infer("add_sub", each, request_id="x") for each in inputs))
            for each, result in zip(values, results, strict=True):
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), 2 * each)
            with pytest.raises(InferenceServerException, match="is not found"):
                await client.infer("nobody", inputs[0])

    asyncio.run(scenario())


def test_a_client_that_gives_up_is_forgotten(examples, connect):
    """The connection goes, the server lives on and no request stays behind."""
    values = np.zeros(4_194_304, np.float32)
    with pytest.raises((InferenceServerException, OSError)):
        connect(examples, network_timeout=0.001).infer("identity_fp32", [tensor("INPUT0", values, "FP32")])
    client = connect(examples)
    until(lambda: client.infer("add_sub", add_sub(np.ones(4, np.float32))), "an answer to the next client")
