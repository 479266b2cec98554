"""The examples that Triton's Python backend comes with, in our words with the same calls; and what their clients do."""

from __future__ import annotations

import queue
import re
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.system.helpers import SECONDS_MAX, Server

# tritonclient leaves its greenlets' sockets and gevent's old imports to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
MODELS = Path(__file__).parent / "backend_examples"
PAIR = {"LEFT": np.float32([1, 2, 3, 4]), "RIGHT": np.float32([10, 20, 30, 40])}
SUM, DIFFERENCE = [11, 22, 33, 44], [-9, -18, -27, -36]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for all of them."""
    started = Server(MODELS, (), tmp_path_factory.mktemp("s"))
    yield started.ready()
    started.end()


@pytest.fixture(params=[httpclient, grpcclient], ids=["http", "grpc"])
def ask(request, server, connect):
    """Ask a model: its outputs by name."""
    kind, client = request.param, connect(server, request.param)

    def infer(model, arrays, wanted=(), **more):
        outputs = [kind.InferRequestedOutput(name, **more) for name in wanted]
        answer = client.infer(model, given(kind, arrays), request_id="1", outputs=outputs or None)
        return answer.as_numpy

    return infer


def given(kind, arrays):
    inputs = []
    for name, array in arrays.items():
        inputs.append(kind.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    return inputs


@pytest.mark.parametrize("model", ["pair", "kinds", "relay_async"])
def test_sums_and_differences(ask, model):
    got = ask(model, PAIR, ("SUM", "DIFFERENCE"))
    assert (got("SUM").tolist(), got("DIFFERENCE").tolist()) == (SUM, DIFFERENCE)
    assert got("SUM").dtype == np.float32


def test_a_model_is_asked_by_the_name_that_the_client_sends(ask):
    def whom(name):
        return {**PAIR, "WHOM": np.array([name], dtype=np.object_)}

    for name in ("pair", "kinds"):
        got = ask("relay", whom(name), ("SUM", "DIFFERENCE"))
        assert (got("SUM").tolist(), got("DIFFERENCE").tolist()) == (SUM, DIFFERENCE)
    with pytest.raises(InferenceServerException) as refused:
        ask("relay", whom("undefined_model"), ("SUM", "DIFFERENCE"))
    assert "Failed for execute the inference request. Model 'undefined_model' is not ready." in refused.value.message()


@pytest.mark.parametrize("model", ["stream_sum", "stream_sum_async"])
def test_the_sum_of_a_stream(ask, server, model):
    for number in (4, 2, 0, 1):
        total = ask(model, {"IN": np.array([number], np.int32)}, ("SUM",))("SUM")
        assert total.tolist() == [number * number] and total.dtype == np.int64, "as numpy made it"
    said = server.says(f"model '{model}' returned output 'SUM' as INT64 [1], but its configuration says INT32 [1]")
    assert said["level"] == "warning"


@pytest.mark.parametrize(("model", "most"), [("completes_one", 0), ("completes_batches", 4)])
def test_a_model_completes_its_configuration(server, connect, ask, model, most):
    config = connect(server).get_model_config(model)
    assert config["max_batch_size"] == most and ("dynamic_batching" in config) == (most > 0)
    tensors = [(each["name"], each["data_type"], each["dims"]) for each in [*config["input"], *config["output"]]]
    assert tensors == [(name, "TYPE_FP32", [4]) for name in ("LEFT", "RIGHT", "SUM")]
    arrays = {name: array.reshape((1, 4) if most else (4,)) for name, array in PAIR.items()}
    assert ask(model, arrays)("SUM").ravel().tolist() == SUM


def test_custom_metrics(server, ask):
    def busy():
        url = f"http://127.0.0.1:{server.says('is ready after')['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as page:
            text = page.read().decode()
        assert "# HELP pairs_busy_ns Nanoseconds spent on pairs\n# TYPE pairs_busy_ns counter\n" in text
        return float(re.search(r'^pairs_busy_ns\{model="counted",version="1"\} (\S+)$', text, re.MULTILINE)[1])

    before = busy()
    assert ask("counted", PAIR)("SUM").tolist() == SUM
    assert busy() > before
    assert server.says("ns so far")["level"] == "info"


def streamed(server, connect, model, *requests):
    """The responses to requests of one stream, in the order in which they came: request id, outputs."""
    client, said = connect(server, grpcclient), queue.Queue()
    client.start_stream(lambda result, error: said.put((result, error)))
    for number, arrays in enumerate(requests):
        client.async_stream_infer(
            model, given(grpcclient, arrays), request_id=str(number), enable_empty_final_response=True
        )
    found, open_requests = [], len(requests)
    while open_requests:
        result, error = said.get(timeout=SECONDS_MAX)
        assert error is None, error
        response = result.get_response()
        outputs = {each.name: result.as_numpy(each.name).tolist() for each in response.outputs}
        if outputs:
            found.append((response.id, outputs))
        open_requests -= response.parameters["triton_final_response"].bool_param
    client.stop_stream()
    return found


def test_squares(server, connect):
    found = streamed(server, connect, "squares", *({"IN": np.array([n], np.int32)} for n in (4, 2, 0, 1)))
    for number, value in enumerate((4, 2, 0, 1)):
        assert [outputs for id_, outputs in found if id_ == str(number)] == [{"OUT": [value]}] * value


def test_repeats(server, connect):
    values, delays = np.int32([4, 2, 0, 1]), np.uint32([1, 2, 3, 4])
    found = streamed(server, connect, "repeats", {"IN": values, "DELAY": delays, "WAIT": np.uint32([5])})
    assert found == [("0", {"OUT": [value], "IDX": [at]}) for at, value in enumerate((4, 2, 0, 1))]


def test_a_picture_is_made_ready_and_classified(ask):
    red_and_blue = np.array([[255, 0, 0] * 3 + [0, 0, 255]], np.uint8)
    scores = ask("picture", {"IMAGE": red_and_blue}, ("SCORES",))("SCORES")
    assert scores.tolist() == [[0.75, 0.0, 0.25]]
    planes = np.float32([0.1, 0.9, 0.2]).reshape(1, 3, 1, 1) * np.ones((1, 3, 2, 2), np.float32)
    best = ask("colour", {"PLANES": planes}, ("SCORES",), class_count=1)("SCORES")
    assert best.tolist() == [[b"0.900000:1:green"]]
