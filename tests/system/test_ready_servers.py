"""Whose failure makes the server not ready, and with which status a load call that fails is answered: as by Triton."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient import grpc as grpcclient
from tritonclient import http as httpclient
from tritonclient.utils import InferenceServerException

from tests.system.helpers import ADD_ONE, CONFIG, until

EXPLICIT = ("--model-control-mode=explicit", "--load-model=good")
POLL = "failed to load 'bad', failed to poll from model repository"
LOAD = "load failed for model 'bad': "
STATE = "version 1 is at UNAVAILABLE state: Invalid argument: "
ENSEMBLE = CONFIG.replace('backend: "python"', 'platform: "ensemble"') + (
    'ensemble_scheduling { step [ { model_name: "nobody" model_version: -1 '
    'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } } ] }'
)
BROKEN = "no_such_key: 1"


def readiness(server):
    return server.ask("GET", "/v2/health/ready")[0]


@pytest.mark.parametrize("mode", [(), ("--model-control-mode=poll", "--repository-poll-secs=0.2")])
def test_a_model_that_cannot_be_read_takes_nobodys_readiness_away(serve, write_model, mode):
    write_model("good")
    write_model("bad", config=CONFIG + BROKEN)
    server = serve("--exit-on-error=false", *mode).ready()
    assert readiness(server) == 200
    assert not server.model_ready("bad") and server.model_ready("good")
    entry = next(each for each in server.ask("POST", "/v2/repository/index")[1] if each["name"] == "bad")
    assert "no_such_key" in entry["reason"]


def test_a_polled_model_that_comes_half_edited_takes_nobodys_readiness_away(serve, write_model):
    write_model("good")
    server = serve("--model-control-mode=poll", "--repository-poll-secs=0.2").ready()
    write_model("bad", config=CONFIG + BROKEN)
    server.says("failed to load 'bad'")
    until(lambda: "bad" in str(server.ask("POST", "/v2/repository/index")[1]), "it is listed")
    assert readiness(server) == 200


@pytest.mark.parametrize(
    ("config", "status", "text", "ready"),
    [
        pytest.param(CONFIG + BROKEN, 500, POLL, 200, id="syntax"),
        pytest.param(CONFIG + "max_batch_size: -1", 500, POLL, 200, id="value"),
        pytest.param(CONFIG + 'name: "other"', 500, POLL, 200, id="name"),
        pytest.param(ENSEMBLE, 400, LOAD + "ensemble bad contains models that are not available", 200, id="ensemble"),
        pytest.param(CONFIG.replace("python", "foo"), 400, LOAD + STATE + "unable to find backend", 400, id="backend"),
        pytest.param(
            CONFIG + "instance_group [ { kind: KIND_CPU gpus: [ 0 ] } ]",
            400,
            LOAD + STATE + "instance group bad_0 of model bad has kind KIND_CPU but specifies one or more GPUs",
            400,
            id="group",
        ),
        pytest.param(
            CONFIG + "version_policy { specific { versions: 3 } }",
            400,
            LOAD + "at least one version must be available under the version policy of model 'bad'",
            400,
            id="version",
        ),
    ],
)
def test_a_load_that_fails(serve, write_model, config, status, text, ready):
    write_model("good")
    write_model("bad", config=config)
    server = serve(*EXPLICIT).ready()
    answered, body = server.ask("POST", "/v2/repository/models/bad/load", {})
    assert (answered, readiness(server)) == (status, ready)
    assert body["error"].startswith(text)
    server.says("failed to load 'bad'" + (" version 1: Invalid argument: " if STATE in text else ""))


def test_an_empty_folder_is_no_model(serve, write_model, tmp_path):
    write_model("good")
    (tmp_path / "models/bad").mkdir()
    server = serve(*EXPLICIT).ready()
    status, body = server.ask("POST", "/v2/repository/models/bad/load", {})
    assert (status, readiness(server)) == (500, 200)
    assert body["error"].startswith(POLL)


def test_clients_wait_over_grpc_for_a_model_that_is_not_there(serve, write_model, connect):
    write_model("good")
    write_model("later")
    server = serve(*EXPLICIT).ready()
    client = connect(server, grpcclient)
    asked = [("nobody", ""), ("later", ""), ("good", "9")]
    assert [client.is_model_ready(*which) for which in asked] == [False] * 3
    client.load_model("later")
    assert client.is_model_ready("later")


RAISES = "raise ValueError('no weights')"


def test_the_start_says_ready_when_readiness_does_and_names_what_failed(serve, write_model):
    write_model("good")
    write_model("bad", config=CONFIG + BROKEN)
    server = serve("--exit-on-error=false").ready()
    record = server.says("is ready after")
    assert record["event"] == "ready" and record["message"].endswith("; models that could not be loaded: bad")
    assert not any("+---" in each["message"] for each in server.log)  # no table among objects


def test_a_start_that_is_not_ready_says_so_and_names_what_failed(serve, write_model):
    write_model("good")
    write_model("bad", RAISES)
    server = serve("--exit-on-error=false").ready()
    record = server.said(lambda each: each.get("event") == "serving", "it serves")
    assert record["level"] == "warning" and record["message"].endswith("is not ready: models that are not ready: bad")
    status, body = server.ask("GET", "/v2/health/ready")
    assert (status, body) == (400, {"error": "models that are not ready: bad"})
    assert not any("is ready after" in each["message"] for each in server.log)


def test_a_repository_without_models_is_a_warning(serve, tmp_path):
    (tmp_path / "models").mkdir()
    server = serve().ready()
    assert server.says(f"there is no model in {tmp_path / 'models'}: ")["level"] == "warning"
    assert readiness(server) == 200


def test_a_repository_that_cannot_be_read_leaves_a_server_that_says_so(serve, write_model, connect):
    write_model("good")
    server = serve("--model-repository=/nowhere", "--exit-on-error=false").ready()
    server.says("creating server: Internal - /nowhere: repository path is not a valid directory")
    assert (server.ask("GET", "/v2/health/live")[0], readiness(server)) == (400, 400)
    assert server.ask("GET", "/v2")[0] == 200
    calls = [("GET", "/v2/models/good"), ("GET", "/v2/models/good/ready"), ("GET", "/v2/models/stats"),
             ("POST", "/v2/repository/index"), ("POST", "/v2/models/good/infer")]  # fmt: skip
    for method, path in calls:
        status, body = server.ask(method, path, {"inputs": []} if method == "POST" else None)
        assert status == 503 and body["error"].startswith("Server not ready"), path
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{server.says('serves after')['grpc_port']}")
    assert not client.is_server_live() and not client.is_server_ready()
    with pytest.raises(InferenceServerException, match="UNAVAILABLE.*Server not ready"):
        client.is_model_ready("good")
    client.close()


def test_a_repository_that_cannot_be_read_ends_the_start_otherwise(serve, write_model):
    write_model("good")
    server = serve("--model-repository=/nowhere")
    assert server.ended() == 1
    server.says("/nowhere: repository path is not a valid directory")


def wait_until_ready(client, name, seconds=60):
    """As PyTriton's clients, Model Analyzer's remote mode and KServe's SDK wait: an error ends their loops."""
    until(lambda: client.is_model_ready(name), f"{name} is ready", seconds)
    return True


@pytest.mark.parametrize("kind", [grpcclient, httpclient], ids=["grpc", "http"])
def test_waiting_loops_of_clients_see_a_model_come(serve, write_model, connect, kind):
    write_model("good")
    write_model("later")
    server = serve(*EXPLICIT).ready()
    client = connect(server, kind)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_until_ready, connect(server, kind), "later")
        assert not client.is_model_ready("later")
        client.load_model("later")
        assert waiting.result(60)
    client.unload_model("later")
    assert not client.is_model_ready("later")


def test_a_model_in_two_repositories_has_tritons_reason(serve, write_model, tmp_path):
    write_model("good")
    write_model("bad")
    shutil.copytree(tmp_path / "models/bad", tmp_path / "second/bad")
    server = serve(f"--model-repository={tmp_path / 'second'}", "--exit-on-error=false").ready()
    entry = next(each for each in server.ask("POST", "/v2/repository/index")[1] if each["name"] == "bad")
    assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "model appears in two or more repositories")
    assert readiness(server) == 200
    assert str(tmp_path / "second/bad") in server.says("failed to load 'bad'")["message"]


def test_a_cancelled_call_is_in_the_verbose_log(serve, write_model, connect, tmp_path):
    gate = tmp_path / "gate"
    lines = ("import os, time", f"open({str(gate) + '.seen'!r}, 'w').close()",
             f"while not os.path.exists({str(gate)!r}): time.sleep(0.005)", "return a + 1")  # fmt: skip
    write_model("m", ADD_ONE.replace("return a + 1", "\n        ".join(lines)))
    server = serve("--log-verbose=1").ready()
    client = connect(server, grpcclient)
    tensor = grpcclient.InferInput("A", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))
    call = client.async_infer("m", [tensor], lambda result, error: None)
    until(lambda: os.path.exists(f"{gate}.seen"), "executing")
    call.cancel()
    server.says("Cancellation notification received for ModelInferHandler, ")
    gate.touch()


def test_a_cache_that_is_too_small_for_any_answer_stops_nobody(serve, write_model):
    write_model("m", config=CONFIG + "response_cache { enable: true }")
    server = serve("--cache-config=local,size=200", "--cache-config=local,extra=1").ready()
    assert [server.infer("m")[0] for _ in range(2)] == [200, 200]
    server.says("local,extra=1 has no effect here")
