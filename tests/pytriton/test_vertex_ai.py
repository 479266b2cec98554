"""Vertex AI's port: PyTriton's documented example, and the paths that Vertex AI has by default."""

import http.client
import json

import numpy as np
import pytest

from tests.pytriton.served import server
from tests.unused_ports import closed_ports
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import ModelConfig, Tensor

DEFAULT = {
    "AIP_PREDICT_ROUTE": "/v1/endpoints/7/deployedModels/8:predict",
    "AIP_HEALTH_ROUTE": "/v1/endpoints/7/deployedModels/8",
}
DOCUMENTED = {"AIP_PREDICT_ROUTE": "/v2/models/AddSub/infer", "AIP_HEALTH_ROUTE": "/v2/health/ready"}
DATA = {"inputs": [{"name": f"INPUT_{n}", "shape": [1, 2], "datatype": "FP32", "data": [n, n]} for n in (1, 2)]}


@batch
def add_sub(**inputs):
    a, b = inputs.values()
    return {"add": a + b, "sub": a - b}


def ask(port, method, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.fixture
def vertex(tmp_path, monkeypatch):
    """Start a server with Vertex AI's variables: it and Vertex AI's port."""
    started = []

    def start(variables, **config):
        http_port = closed_ports(2)
        for name, value in {"AIP_MODE": "PREDICTION", **variables}.items():
            monkeypatch.setenv(name, value)
        if "vertex_ai_port" not in config:
            monkeypatch.setenv("AIP_HTTP_PORT", str(http_port + 1))
        made = server(workspace=tmp_path / "work", allow_http=True, http_port=http_port, allow_vertex_ai=True, **config)
        started.append(made)
        tensor = {"dtype": np.float32, "shape": (-1,)}
        made.bind(
            "AddSub", add_sub, [Tensor(**tensor), Tensor(**tensor)],
            [Tensor(name="add", **tensor), Tensor(name="sub", **tensor)], config=ModelConfig(max_batch_size=128),
            strict=True,
        )  # fmt: skip
        return made, http_port + 1

    yield start
    for each in started:
        each.stop()


def outputs(answer):
    return {each["name"]: each["data"] for each in json.loads(answer)["outputs"]}


@pytest.mark.parametrize("variables", [DOCUMENTED, DEFAULT], ids=["documented", "default"])
def test_both_routes_are_answered_beside_http(vertex, variables):
    triton, port = vertex(variables)
    with triton:
        assert not triton.is_connected(), "the server starts when the models are there"
        triton.run()
        assert ask(port, "GET", variables["AIP_HEALTH_ROUTE"])[0] == 200
        status, answer = ask(port, "POST", variables["AIP_PREDICT_ROUTE"], DATA)
        assert (status, outputs(answer)) == (200, {"add": [3, 3], "sub": [-1, -1]})
        with ModelClient(f"http://{triton.http_address}", "AddSub") as client:
            assert client.infer_sample(*np.ones((2, 1), np.float32))["add"].tolist() == [2]
        assert ask(port, "GET", variables["AIP_PREDICT_ROUTE"])[0] == 405
        status, answer = ask(port, "GET", "/v2")
        assert status == 400
        assert variables["AIP_PREDICT_ROUTE"].encode() in answer


def test_a_redirect_reads_and_changes_nothing(vertex):
    triton, port = vertex(DEFAULT)
    triton.run()

    def redirected(path, body=None):
        return ask(port, "POST", DEFAULT["AIP_PREDICT_ROUTE"], body, **{"X-Vertex-Ai-Triton-Redirect": path})

    assert outputs(redirected("v2/models/AddSub/infer", DATA)[1])["add"] == [3, 3]
    assert json.loads(redirected("v2/models/AddSub")[1])["name"] == "AddSub"
    assert redirected("v2/health/live")[0] == 200
    assert redirected("v2/models/AddSub/stats")[0] == 403, "it needs the token, as at every port"
    for path in ("v2/repository/models/AddSub/unload", "v2/models/AddSub/generate", "nowhere"):
        assert redirected(path) == (
            403,
            b'{"error":"X-Vertex-Ai-Triton-Redirect: \'%s\' is no path that Vertex AI\'s port serves"}' % path.encode(),
        )


def test_predictions_are_for_a_model_that_is_named_or_alone(vertex):
    triton, port = vertex(DEFAULT, vertex_ai_default_model="AddSub")
    other = {"dtype": np.float32, "shape": (-1,)}
    triton.bind("other", lambda requests: None, [Tensor(name="x", **other)], [Tensor(name="y", **other)])
    triton.run()
    assert outputs(ask(port, "POST", DEFAULT["AIP_PREDICT_ROUTE"], DATA)[1])["add"] == [3, 3]


def test_without_a_name_two_models_are_one_too_many(vertex):
    triton, port = vertex(DEFAULT)
    other = {"dtype": np.float32, "shape": (-1,)}
    triton.bind("other", lambda requests: None, [Tensor(name="x", **other)], [Tensor(name="y", **other)])
    triton.run()
    status, answer = ask(port, "POST", DEFAULT["AIP_PREDICT_ROUTE"], DATA)
    assert (status, json.loads(answer)["error"]) == (
        400,
        "predictions are for the only model, and there are 2: name one with --vertex-ai-default-model",
    )
