"""Models of one name in several repositories (--model-namespacing)."""

import shutil
from urllib.parse import quote

import pytest

from tests.system.helpers import ADD_ONE, CONFIG, until

NAMESPACED = "--model-namespacing=true"
AMBIGUOUS = (
    "There are 2 identifiers of model 'both' in global map, model namespace must be provided to resolve ambiguity."
)


def write(repository, name, number):
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(ADD_ONE.replace("return a + 1", f"return a + {number}"))
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder


def write_ensemble(repository, name, step):
    (repository / name / "1").mkdir(parents=True)
    maps = 'input_map { key: "A" value: "A" } output_map { key: "B" value: "B" }'
    scheduling = f'ensemble_scheduling {{ step [ {{ model_name: "{step}" model_version: -1 {maps} }} ] }}'
    tensors = CONFIG.replace('backend: "python"', 'platform: "ensemble"')
    (repository / name / "config.pbtxt").write_text(tensors + scheduling)


@pytest.fixture
def repositories(tmp_path):
    """The models of Triton's own test of namespaces."""
    one, two = tmp_path / "models", tmp_path / "two"
    write(one, "both", 1)
    write(two, "both", 100)
    write(one, "only", 7)
    write_ensemble(one, "e1", "both")
    write_ensemble(two, "e2", "both")
    write_ensemble(two, "e3", "only")
    write_ensemble(one, "ee", "both")
    write_ensemble(two, "ee", "both")
    return one, two


def added(server, model):
    status, body = server.infer(model, [0.0])
    return body["outputs"][0]["data"][0] if status == 200 else body["error"]


def test_each_repository_has_names_of_its_own(serve, repositories):
    one, two = repositories
    server = serve(NAMESPACED, f"--model-repository={two}").ready()
    assert added(server, "only") == 7
    assert added(server, "e1") == 1
    assert added(server, "e2") == 100
    assert added(server, "e3") == 7
    assert server.infer("both") == (400, {"error": AMBIGUOUS})
    assert server.infer("nobody") == (400, {"error": "Request for unknown model: 'nobody' is not found"})
    assert server.ask("GET", "/v2/models/both")[0] == 400
    assert server.ask("GET", "/v2/models/both/config")[1] == {"error": AMBIGUOUS}
    assert server.ask("GET", "/v2/models/both/ready")[0] == 400
    assert server.ask("GET", "/v2/models/both/stats")[0] == 400
    status, body = server.ask("GET", "/v2/models/only/versions/9")
    assert body["error"] == f"Request for unknown model: '{one}::only' version 9 is not found"
    names = [entry["name"] for entry in server.ask("POST", "/v2/repository/index")[1]]
    assert names == ["both", "e1", "ee", "only", "both", "e2", "e3", "ee"]
    config = server.ask("GET", "/v2/models/e1/config")[1]
    assert config["ensemble_scheduling"]["step"][0]["model_namespace"] == str(one)


def test_a_namesake_is_asked_by_its_whole_identity(serve, repositories):
    """tisfast's own: Triton has no way to."""
    one, two = repositories
    server = serve(NAMESPACED, f"--model-repository={two}").ready()
    assert added(server, quote(f"{one}::both", safe="")) == 1
    assert added(server, quote(f"{two}::both", safe="")) == 100
    counts = {entry["name"]: entry for entry in server.ask("GET", "/v2/models/stats")[1]["model_stats"]}
    assert counts["both"]["inference_count"] == 1


def test_metrics_have_a_namespace(serve, repositories):
    one, two = repositories
    server = serve(NAMESPACED, f"--model-repository={two}").ready()
    added(server, "only")
    ready = next(record for record in server.log if record.get("event") == "ready")
    server.port = ready["metrics_port"]
    text = metrics(server)
    assert f'nv_inference_request_success{{model="only",namespace="{one}",version="1"}} 1.0' in text
    for repository in repositories:
        assert f'nv_model_load_duration_secs{{model="both",namespace="{repository}",version="1"}}' in text


def metrics(server):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_ensembles_follow_where_their_parts_go(serve, repositories):
    one, two = repositories
    flags = ("--model-control-mode=poll", "--repository-poll-secs=0.2")
    server = serve(NAMESPACED, f"--model-repository={two}", *flags).ready()
    assert added(server, "e1") == 1
    shutil.move(one / "both", one.parent / "away")
    until(lambda: added(server, "both") == 100, "the name means the only model that has it")
    until(lambda: added(server, "e1") == 100, "and so it does in an ensemble of the other repository")
    shutil.move(one.parent / "away", one / "both")
    until(lambda: added(server, "e1") == 1, "its own repository's model is taken again")
    assert server.infer("both") == (400, {"error": AMBIGUOUS})
    assert added(server, "e2") == 100


def test_a_load_is_of_all_that_have_the_name(serve, repositories):
    one, two = repositories
    server = serve(NAMESPACED, f"--model-repository={two}", "--model-control-mode=explicit", "--load-model=e1").ready()
    assert added(server, "e1") == 1
    assert added(server, "both") == 1
    assert server.ask("POST", "/v2/repository/models/both/load")[0] == 200
    assert server.infer("both") == (400, {"error": AMBIGUOUS})
    assert server.ask("POST", "/v2/repository/models/e2/load")[0] == 200
    assert added(server, "e2") == 100
    status, body = server.ask("POST", "/v2/repository/models/both/load", {"parameters": {"config": "{}"}})
    assert status == 400
    assert "there are 2 of that name in namespaces" in body["error"]
    assert server.ask("POST", "/v2/repository/models/only/unload")[0] == 200
    assert server.ask("POST", "/v2/repository/models/nobody/load")[0] == 500
    assert server.ask("POST", "/v2/repository/models/both/unload")[0] == 200
    until(lambda: server.infer("both")[0] in (400, 404) and added(server, "both") != AMBIGUOUS, "both are unloaded")
