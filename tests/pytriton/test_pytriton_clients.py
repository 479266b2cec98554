"""The clients that wait, and the one of futures, over both protocols."""

import threading
import warnings

import numpy as np
import pytest

from tests.pytriton.served import (
    DECOUPLED,
    ONE,
    TOKEN,
    A,
    add,
    count_up,
    fail,
    fail_after_one,
    grpc,
    http,
    model,
    start,
)
from tests.unused_ports import closed_port
from tests.waiting import wait_until
from tisfast.pytriton.client import DecoupledModelClient, FuturesModelClient, ModelClient
from tisfast.pytriton.client.auth import create_auth_headers, extract_access_token_from_headers
from tisfast.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientError,
    PyTritonClientInferenceServerError,
    PyTritonClientInvalidUrlError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientQueueFullError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from tisfast.pytriton.client.utils import (
    ModelState,
    TritonUrl,
    create_client_from_url,
    get_model_config,
    get_model_state,
    wait_for_server_ready,
)
from tisfast.pytriton.client.warnings import NotSupportedTimeoutWarning
from tisfast.pytriton.model_config import ModelConfig, Tensor

TWO = np.array([[1], [2]], np.float32)
SHORT_SECONDS = 1  # a server that is there has answered by then, on a busy machine, too
TEXT = Tensor(name="text", shape=(-1,), dtype=bytes)
# Clients of gRPC warn of their timeouts; one test looks at that.
pytestmark = pytest.mark.filterwarnings("ignore::tisfast.pytriton.client.warnings.NotSupportedTimeoutWarning")


class Held:
    """A callable that waits."""

    def __init__(self):
        self.let_go = threading.Event()
        self.began = threading.Event()

    def __call__(self, requests):
        self.began.set()
        self.let_go.wait(60)
        return add(requests)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    held = Held()
    triton = start(
        model("add", add),
        model("fail", fail),
        model("held", held),
        model("text", lambda requests: [{"text": each["text"]} for each in requests], [TEXT], [TEXT]),
        model("single", add, config=ModelConfig(batching=False)),
        model("nothing", lambda requests: [{} for _ in requests], [A], []),
        model("count", count_up, [A], config=DECOUPLED),
        model("fail_after_one", fail_after_one, [A], config=DECOUPLED),
        workspace=tmp_path_factory.mktemp("pytriton") / "work",
    )
    triton.held = held
    yield triton
    held.let_go.set()
    triton.stop()


@pytest.fixture(params=[http, grpc])
def url(running, request):
    return request.param(running)


# ---- addresses and tokens


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("localhost", "http://localhost:8000"),
        ("localhost:1", "http://localhost:1"),
        ("grpc://host", "grpc://host:8001"),
        ("http://host:5", "http://host:5"),
    ],
)
def test_urls_have_scheme_and_port(given, full):
    url = TritonUrl.from_url(given)
    assert url.with_scheme == full
    assert url.without_scheme == full.partition("://")[2] == f"{url.hostname}:{url.port}"


@pytest.mark.parametrize("wrong", [5, "", "https://host", "ftp://host", "host:99999", "host:x", "http://"])
def test_what_is_no_url_is_refused(wrong):
    with pytest.raises(PyTritonClientInvalidUrlError, match="Invalid url") as caught:
        ModelClient(wrong, "m")
    assert isinstance(caught.value, PyTritonClientValueError)
    assert isinstance(caught.value, PyTritonClientError)
    assert caught.value.message == str(caught.value)


def test_tokens_are_headers():
    assert create_auth_headers("x", "http") == {"triton-access-token": "x"}
    assert create_auth_headers("x", "GRPC") == {"triton-grpc-protocol-triton-access-token": "x"}
    for token, protocol in (("", "http"), (None, "http"), ("x", "ftp")):
        with pytest.raises(ValueError):
            create_auth_headers(token, protocol)


def test_tokens_are_found_among_headers():
    both = {"triton-access-token": "a", "triton-grpc-protocol-triton-access-token": "a"}
    assert extract_access_token_from_headers(both) == "a"
    assert extract_access_token_from_headers({"other": "a"}) is None
    assert extract_access_token_from_headers(None) is None
    with pytest.raises(ValueError, match="differ"):
        extract_access_token_from_headers({**both, "triton-access-token": "b"})


# ---- inferences


def test_samples_and_batches_by_position_and_by_name(url):
    with ModelClient(url, "add") as client:
        assert client.infer_sample(ONE)["o"].tolist() == [1]
        assert client.infer_sample(b=ONE, a=ONE)["o"].tolist() == [2]
        assert client.infer_batch(TWO, TWO)["o"].tolist() == [[2], [4]]
        assert client.is_batching_supported


def test_arrays_of_bytes_are_text(url):
    with ModelClient(url, "text") as client:
        for dtype in ("S", object):
            assert client.infer_sample(np.array([b"a", b"bc"], dtype))["text"].tolist() == [b"a", b"bc"]
        for text in (np.array(["a"]), np.array(["a"], object)):
            with pytest.raises(RuntimeError, match="Input 'text'"):
                client.infer_sample(text)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((ONE,), {"b": ONE}, "Use either positional either keyword method arguments convention"),
        ((), {}, "Provide input data"),
        (([1.0],), {}, "Input 'a' is a list"),
        ((ONE, ONE, ONE), {}, "3 inputs were given, and model add has 2: a, b"),
        ((ONE,), {"parameters": [1]}, "parameters must be a dictionary"),
        ((ONE,), {"parameters": {1: 2}}, "names must be text"),
        ((ONE,), {"parameters": {"x": 1.5}}, "values must be text, integers or booleans"),
        ((ONE,), {"headers": {"x": None}}, "values must be text, integers or booleans"),
    ],
)
def test_arguments_that_cannot_be_sent_are_refused(url, arguments, options, message):
    with ModelClient(url, "add") as client, pytest.raises(PyTritonClientValueError, match=message):
        client.infer_sample(*arguments, **options)


@pytest.mark.parametrize(
    "inputs", [{"zz": ONE}, {"b": ONE}, {"a": ONE.astype(np.float64)}, {"a": np.ones(2, np.float32)}]
)
def test_what_the_model_does_not_take_is_the_servers_error(url, inputs):
    with ModelClient(url, "add") as client:
        with pytest.raises(
            PyTritonClientInferenceServerError, match="Error occurred during inference request. Message: "
        ):
            client.infer_sample(**inputs)
        assert client.infer_sample(ONE)["o"].tolist() == [1]


def test_requests_are_counted(url):
    with ModelClient(url, "add") as client:
        for number in range(2):
            with pytest.raises(PyTritonClientInferenceServerError, match=rf"\[request id: {number}\].*must be <= 4"):
                client.infer_batch(np.ones((9, 1), np.float32))


def test_what_the_model_raises_is_an_error(url):
    with (
        ModelClient(url, "fail") as client,
        pytest.raises(PyTritonClientInferenceServerError, match="division by zero"),
    ):
        client.infer_sample(ONE)


def test_a_model_without_batching_takes_samples_only(url):
    with ModelClient(url, "single") as client:
        assert client.infer_sample(ONE)["o"].tolist() == [1]
        with pytest.raises(PyTritonClientModelDoesntSupportBatchingError):
            client.infer_batch(TWO)


def test_a_model_without_outputs_gives_none(url):
    with ModelClient(url, "nothing") as client:
        assert client.infer_sample(ONE) == {}


def test_a_late_answer_is_a_timeout(url, running):
    with ModelClient(url, "held", inference_timeout_s=0.3) as client, pytest.raises(PyTritonClientTimeoutError):
        client.infer_sample(ONE)
    running.held.let_go.set()
    with ModelClient(url, "held") as client:
        assert client.infer_sample(ONE)["o"].tolist() == [1]
    running.held.let_go.clear()


# ---- what is known of server and model


def test_an_absent_model_is_a_timeout(url):
    message = "Waiting for model absent/<latest> to be ready timed out."
    for call in (
        lambda: ModelClient(url, "absent", init_timeout_s=SHORT_SECONDS).infer_sample(ONE),
        lambda: ModelClient(url, "absent", init_timeout_s=SHORT_SECONDS, lazy_init=False),
        lambda: ModelClient(url, "absent").wait_for_model(SHORT_SECONDS),
    ):
        with pytest.raises(PyTritonClientTimeoutError, match=message):
            call()
    with pytest.raises(PyTritonClientTimeoutError, match="Waiting for model add/7 to be ready timed out."):
        ModelClient(url, "add", "7", init_timeout_s=SHORT_SECONDS).infer_sample(ONE)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_an_absent_server_is_a_timeout(scheme):
    client = ModelClient(f"{scheme}://127.0.0.1:{closed_port()}", "m", init_timeout_s=SHORT_SECONDS)
    with pytest.raises(PyTritonClientTimeoutError, match="Waiting for server to be ready timed out."):
        client.infer_sample(ONE)


def test_a_known_configuration_is_not_asked_for(url):
    with ModelClient(url, "add") as client:
        config = client.model_config
        assert [spec.name for spec in config.inputs] == ["a", "b"]
        with ModelClient(url, "add", model_config=config, ensure_model_is_ready=False) as other:
            assert other.infer_sample(ONE)["o"].tolist() == [1]
        with ModelClient.from_existing_client(client) as other:
            assert other.model_config is config


def test_a_closed_client_says_so(url):
    client = ModelClient(url, "add")
    client.close()
    client.close()
    for call in (
        lambda: client.infer_sample(ONE),
        lambda: client.infer_batch(TWO),
        lambda: client.wait_for_model(1),
        lambda: client.wait_for_server(1),
        lambda: client.model_config,
    ):
        with pytest.raises(PyTritonClientClosedError):
            call()


def test_what_a_token_opens(url):
    with ModelClient(url, "add") as client, pytest.raises(PyTritonClientInferenceServerError, match="restricted"):
        client.load_model()
    with (
        ModelClient(url, "add", access_token=TOKEN) as client,
        pytest.raises(PyTritonClientInferenceServerError, match="guest"),
    ):
        client.load_model()  # it may; but this model comes from a guest


def test_helpers_ask_the_server(url):
    client = create_client_from_url(url, network_timeout_s=60)
    headers = create_auth_headers(TOKEN, url[:4])
    wait_for_server_ready(client, timeout_s=60)
    assert get_model_config(client, "add", timeout_s=60).model_name == "add"
    assert get_model_state(client, "add", headers=headers) is ModelState.READY
    assert get_model_state(client, "add", "7", headers=headers) is ModelState.UNAVAILABLE
    assert get_model_state(client, "absent", headers=headers) is ModelState.UNAVAILABLE
    client.close()


def test_grpc_warns_of_the_timeout_of_its_network(running):
    with pytest.warns(NotSupportedTimeoutWarning):
        ModelClient(grpc(running), "add")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ModelClient(http(running), "add")


# ---- futures


def test_futures_are_answered_and_more_than_one_at_a_time(url):
    with FuturesModelClient(url, "add", max_workers=3) as client:
        futures = [client.infer_sample(np.array([number], np.float32)) for number in range(20)]
        assert [float(future.result()["o"][0]) for future in futures] == list(range(20))
        assert client.infer_batch(TWO).result()["o"].tolist() == [[1], [2]]
        assert client.model_config().result().model_name == "add"
        assert client.wait_for_model(60).result() is None


def test_an_error_does_not_end_the_client_of_futures(url):
    with FuturesModelClient(url, "fail", max_workers=1) as client:
        for _ in range(2):
            with pytest.raises(PyTritonClientInferenceServerError, match="division by zero"):
                client.infer_sample(ONE).result()


@pytest.mark.parametrize("how", [{"non_blocking": True}, {"inference_timeout_s": 0.05}])
def test_a_full_queue_is_an_error(url, how):
    # The only worker waits for a model that does not come.
    with FuturesModelClient(url, "absent", max_workers=1, max_queue_size=1, init_timeout_s=3, **how) as client:
        taken = client.infer_sample(ONE)
        wait_until(taken.running)
        waiting = client.infer_sample(ONE)
        with pytest.raises(PyTritonClientQueueFullError):
            client.infer_sample(ONE)
        waiting.cancel()


def test_bounds_of_futures(url):
    for bound in ("max_workers", "max_queue_size"):
        with pytest.raises(ValueError, match=bound):
            FuturesModelClient(url, "add", **{bound: 0})
    client = FuturesModelClient(url, "add", max_workers=None, max_queue_size=None)
    assert client.infer_sample(ONE).result()["o"].tolist() == [1]
    client.close()
    with pytest.raises(PyTritonClientClosedError):
        client.infer_sample(ONE)


def test_what_a_client_may_not_ask_is_an_error_at_once(closed_to_strangers):
    with ModelClient(http(closed_to_strangers), "add", access_token="other") as client:
        for call in (
            lambda: client.wait_for_model(60),
            lambda: client.model_config,
            lambda: client.infer_sample(ONE),
        ):
            with pytest.raises(PyTritonClientInferenceServerError, match="restricted"):
                call()


# ---- decoupled


def test_a_client_of_the_wrong_protocol_asks_nothing_before_it_says_so():
    with pytest.raises(PyTritonClientValueError, match="only supported for grpc"):
        DecoupledModelClient(f"localhost:{closed_port()}", "m", lazy_init=False)


def test_answers_come_as_an_iterator(running):
    with DecoupledModelClient(grpc(running), "count") as client:
        for _ in range(2):
            assert [each["o"].tolist() for each in client.infer_sample(ONE)] == [[1], [2], [3]]
        assert [each["o"].tolist() for each in client.infer_batch(a=TWO)] == [[[1], [2]], [[2], [3]], [[3], [4]]]


def test_one_stream_at_a_time(running):
    with DecoupledModelClient(grpc(running), "count") as client:
        answers = client.infer_sample(ONE)
        assert next(answers)["o"].tolist() == [1]
        with pytest.raises(PyTritonClientInferenceServerError, match="Inference is already in progress"):
            client.infer_sample(ONE)
        assert len(list(answers)) == 2
        assert len(list(client.infer_sample(ONE))) == 3


def test_an_error_ends_a_stream_and_not_the_client(running):
    with DecoupledModelClient(grpc(running), "fail_after_one") as client:
        for _ in range(2):
            answers = client.infer_sample(ONE)
            assert next(answers)["o"].tolist() == [1]
            with pytest.raises(PyTritonClientInferenceServerError, match="after one"):
                next(answers)


def test_a_stream_may_be_left(running):
    client = DecoupledModelClient(grpc(running), "count")
    next(client.infer_sample(ONE))
    assert len(list(client.infer_sample(ONE))) == 3
    answers = client.infer_sample(ONE)
    client.close()
    assert list(answers) == []


def test_each_kind_of_model_has_its_clients(running):
    with (
        ModelClient(http(running), "count") as client,
        pytest.raises(PyTritonClientInferenceServerError, match="decoupled"),
    ):
        client.infer_sample(ONE)
    with DecoupledModelClient(grpc(running), "add") as client:
        for _ in range(2):  # it is not locked by that
            with pytest.raises(PyTritonClientInferenceServerError, match="coupled"):
                client.infer_sample(ONE)
    with pytest.raises(PyTritonClientValueError, match="grpc"):
        DecoupledModelClient(http(running), "count")


def test_streams_take_no_parameters(running):
    with DecoupledModelClient(grpc(running), "count") as client:
        for odd in ({"parameters": {"a": 1}}, {"headers": {}}):
            with pytest.raises(PyTritonClientValueError, match="does not support parameters or headers"):
                client.infer_sample(ONE, **odd)


def test_the_end_of_the_server_is_a_timeout(triton):
    gone = triton(model("m", add))
    clients = [ModelClient(url(gone), "m") for url in (http, grpc)]
    for client in clients:
        client.infer_sample(ONE)
    gone.stop()
    for client in clients:
        with pytest.raises(PyTritonClientTimeoutError):
            client.infer_sample(ONE)
