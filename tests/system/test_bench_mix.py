"""`tisfast bench --mix`: several models in one load, against tisfast."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

from tests.system.bench_command import DECOUPLED, SEQUENCES, STREAM, bench, figure

FAILS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        error = pb_utils.TritonError("it cannot")
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            if a.flat[0] < 0:
                answers.append(pb_utils.InferenceResponse(error=error))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", a)]))
        return answers
"""


@pytest.fixture
def server(write_model, serve):
    write_model("add_one")
    write_model("other", FAILS)
    write_model("talker", STREAM, DECOUPLED)
    write_model("counter", FAILS, SEQUENCES)
    return serve("--log-verbose=0").ready()


@pytest.fixture
def urls(server):
    return {"http": f"127.0.0.1:{server.port}", "grpc": f"127.0.0.1:{server.says('is ready after')['grpc_port']}"}


def mix(folder, *models):
    path = folder / "mix.json"
    path.write_text(json.dumps({"models": list(models)}))
    return path


@pytest.mark.parametrize("load", [["--concurrency-range", "3"], ["--request-rate-range", "400"]])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_models_get_their_shares_and_have_figures_of_their_own(urls, tmp_path, protocol, load):
    path = mix(
        tmp_path, {"model": "add_one", "weight": 3, "shape": {"A": [4]}}, {"model": "other", "shape": {"A": [8]}}
    )
    code, out, err = bench(
        "--mix", path, "-i", protocol, "-u", urls[protocol], *load, "--request-count", "800",
        "--json", tmp_path / "x.json", "-f", tmp_path / "x.csv", "--report", tmp_path / "x.html",
        "--profile-export-file", tmp_path / "export.json", "--openmetrics", tmp_path / "x.om",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert figure(out, "Request count") == 800
    (level,) = json.loads((tmp_path / "x.json").read_text())["levels"]
    models = level["models"]
    assert models["add_one"]["completed"] + models["other"]["completed"] == level["completed"] == 800
    assert 540 <= models["add_one"]["completed"] <= 660  # 600, and chance
    for name, model in models.items():
        assert model["response_time"]["count"] == model["completed"] == model["server"]["success_count"]
        assert model["server"]["model"] == name
        assert f"\n  Model {name}: \n    Request count: {model['completed']}\n" in out
        (row,) = csv.DictReader((tmp_path / f"{name}.x.csv").read_text().splitlines())
        assert int(row["p50 latency"]) > 0 and row["Server Queue"]
    assert level["server"]["success_count"] == 800 and level["server"]["composing"] == {}
    (experiment,) = json.loads((tmp_path / "export.json").read_text())["experiments"]
    counted = Counter(each["model"] for each in experiment["requests"])
    assert counted == {name: model["completed"] for name, model in models.items()}
    samples = [line for line in (tmp_path / "x.om").read_text().splitlines() if "bench_model_requests_total" in line]
    assert sorted(float(line.split()[-1]) for line in samples) == sorted(counted.values())
    assert "<h2>Models</h2>" in (tmp_path / "x.html").read_text()


def test_a_model_that_fails_is_told_apart(urls, tmp_path):
    (tmp_path / "other.json").write_text(json.dumps({"data": [{"A": [1.0]}, {"A": [-1.0]}]}))
    path = mix(tmp_path, {"model": "add_one", "shape": {"A": [4]}}, {"model": "other", "input_data": "other.json"})
    code, out, _ = bench("--mix", path, "-u", urls["http"], "--request-count", "100", "--json", tmp_path / "x.json")
    assert code == 1
    (level,) = json.loads((tmp_path / "x.json").read_text())["levels"]
    (error,) = level["errors"]["by_text"]
    assert error[1].startswith("other: ") and "it cannot" in error[1]
    assert level["models"]["add_one"]["errors"]["count"] == 0
    other = level["models"]["other"]
    assert other["errors"]["count"] == level["errors"]["count"] == error[2]
    assert other["completed"] - other["errors"]["count"] in (0, 1)  # its steps come in turn
    assert "it cannot" in other["errors"]["by_text"][0][1]
    assert f"    Failed requests: {error[2]} in the measured windows" in out


def test_the_same_seed_draws_the_same(urls, tmp_path):
    path = mix(tmp_path, {"model": "add_one", "shape": {"A": [4]}}, {"model": "other", "shape": {"A": [4]}})
    counts = []
    for seed in (1, 1, 2):
        file = tmp_path / f"{len(counts)}.json"
        assert bench("--mix", path, "-u", urls["http"], "--request-count", "99", "--seed", seed, "--json", file)[0] == 0
        (level,) = json.loads(file.read_text())["levels"]
        counts.append({name: each["completed"] for name, each in level["models"].items()})
    assert counts[0] == counts[1] != counts[2]


@pytest.mark.parametrize(
    ("models", "more", "text"),
    [
        ([{"model": "missing"}], [], "missing"),
        ([{"model": "counter"}], [], "model 'counter' is served in sequences"),
        ([{"model": "add_one"}], [], "--mix: model 'add_one': input 'A' of model 'add_one' contains dynamic shape"),
        ([{"model": "add_one", "shape": {"A": [4]}}, {"model": "talker"}], ["--streaming"], "'talker' is decoupled"),
    ],
)
def test_what_cannot_be_mixed_is_refused(urls, tmp_path, models, more, text):
    code, _, err = bench("--mix", mix(tmp_path, *models), "-i", "grpc", "-u", urls["grpc"], *more)
    assert code == 99 and text in err
