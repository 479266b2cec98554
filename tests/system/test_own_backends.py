"""A backend in --backend-directory, as docs/backends.md has it: served, completed, and what is wrong with one."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.system.backend_fixtures import EXAMPLE, MLP
from tests.system.helpers import ROOT, index, until


def wanted(weights, rows):
    return np.maximum(rows @ weights["W0"] + weights["b0"], 0) @ weights["W1"] + weights["b1"]


def config_of(server, name):
    return server.ask("GET", f"/v2/models/{name}/config")[1]


@pytest.fixture
def ask(connect):
    def asked(server, name, rows):
        tensor = grpcclient.InferInput("X", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        return connect(server, grpcclient).infer(name, [tensor]).as_numpy("Y")

    return asked


def test_a_model_of_an_own_backend_needs_one_line(serve, write_weights, backends, weights, ask):
    write_weights("xor")
    server = serve(f"--backend-directory={backends}").ready()
    config = config_of(server, "xor")
    assert (config["backend"], config["max_batch_size"]) == ("mlp", 4)
    assert config["input"][0]["dims"] == [4] and config["output"][0]["name"] == "Y"
    assert "dynamic_batching" in config
    rows = np.random.default_rng(4).standard_normal((3, 4), np.float32)
    assert np.allclose(ask(server, "xor", rows), wanted(weights, rows), atol=1e-6)


def test_what_the_configuration_says_stays(serve, write_weights, backends, weights, ask):
    write_weights("m", MLP + "max_batch_size: 64 instance_group [ { count: 2 } ]")
    server = serve(f"--backend-directory={backends}", "--backend-config=default-max-batch-size=7").ready()
    config = config_of(server, "m")
    assert config["max_batch_size"] == 64 and config["dynamic_batching"]["preferred_batch_size"] == [64]
    rows = np.zeros((64, 4), np.float32)
    assert np.allclose(ask(server, "m", rows), wanted(weights, rows), atol=1e-6)


def test_a_backend_may_have_a_largest_batch_of_its_own(serve, write_weights, backends):
    write_weights("m")
    sizes = ("--backend-config=default-max-batch-size=7", "--backend-config=mlp,default-max-batch-size=9")
    assert config_of(serve(f"--backend-directory={backends}", *sizes).ready(), "m")["max_batch_size"] == 9


def test_python_models_are_served_beside_it(serve, write_model, write_weights, backends):
    write_model("one")
    write_weights("two")
    server = serve(f"--backend-directory={backends}").ready()
    assert server.infer("one")[0] == 200


@pytest.mark.parametrize(
    ("code", "config", "reason"),
    [
        ("", MLP, r"has no class Backend that is an ArrayBackend or RequestBackend of tisfast\.backend"),
        ("import nothing_of_the_kind", MLP, "nothing_of_the_kind"),
        (None, MLP + "model_transaction_policy { decoupled: true }", "one answer to a request, and it is decoupled"),
        (None, MLP + "max_batch_size: 4 sequence_batching { iterative_sequence: true }", "as iterative sequences do"),
        (None, MLP + 'input { name: "Z" data_type: TYPE_FP32 dims: [ 4 ] }', "unexpected inference input 'Z', allowed"),
        (None, 'backend: "mlps"', "did you mean 'mlp'"),
        (None, 'backend: "dali"', r'served here: .*"mlp" or '),
        (None, MLP + 'default_model_filename: "other.npz"', "model file 'other.npz' of m not found"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_backend_or_its_model_is_told(serve, write_weights, backends, code, config, reason):
    write_weights("m", config)
    if code is not None:
        (backends / "mlp/backend.py").write_text(code)
    server = serve(f"--backend-directory={backends}", "--exit-on-error=false", "--strict-readiness=false").ready()
    until(lambda: index(server)["m"].get("reason"), "the index has a reason")
    assert re.search(reason, index(server)["m"]["reason"])


def test_a_model_that_fails_tells_its_client(serve, write_weights, backends, weights):
    write_weights("m", MLP, **{**weights, "W1": np.zeros((5, 2), np.float32)})
    server = serve(f"--backend-directory={backends}").ready()
    tensor = {"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [1] * 4}
    status, body = server.ask("POST", "/v2/models/m/infer", {"inputs": [tensor]})
    assert status == 500 and "matmul" in body["error"]


def test_the_search_example_finds_lines(serve, connect):
    server = serve(f"--backend-directory={EXAMPLE}", repository=ROOT / "examples/search").ready()
    query = grpcclient.InferInput("QUERY", [3, 1], "BYTES")
    asked = ["which Python environment?", "Shared MEMORY of a worker", "nothingofthekind"]
    query.set_data_from_numpy(np.array([[text.encode()] for text in asked], np.object_))
    answer = connect(server, grpcclient).infer("manual", [query])
    found, scores = answer.as_numpy("DOCUMENT"), answer.as_numpy("SCORE")
    assert found.shape == scores.shape == (3, 2)
    assert found[0, 0].startswith(b"An environment is") and found[1, 0].startswith(b"Tensors reach a worker")
    assert (scores[:2, 0] > scores[:2, 1]).all() and (scores[2] == 0).all()


SEEING = """
from tisfast.backend import ArrayBackend, Refusal

class Backend(ArrayBackend):
    def load(self):
        raise Refusal(f"settings {self.model.settings}")
"""


def test_a_backend_sees_its_settings(serve, write_weights, backends):
    (backends / "mlp/backend.py").write_text(SEEING)
    write_weights("m")
    settings = [f"--backend-config={each}" for each in ("mlp,layers=7", "mlp,layers=8", "all=yes", "other,layers=9")]
    flags = (f"--backend-directory={backends}", "--exit-on-error=false", "--strict-readiness=false", *settings)
    server = serve(*flags).ready()
    until(lambda: index(server)["m"].get("reason"), "the index has a reason")
    assert index(server)["m"]["reason"].endswith("settings {'all': 'yes', 'layers': '8'}")
    server.says("--backend-config=other,layers=9 has no effect here, because there is no backend 'other' here")
