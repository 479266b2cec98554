"""`tisfast bench --replay`: captured traffic against tisfast, and what a trace file gives of it."""

from __future__ import annotations

import json

import pytest

from tests.system.bench_command import bench, figure
from tests.system.helpers import until

SEEN = """
import json, os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.log = open(os.path.join(args["model_repository"], "seen"), "a")

    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            self.log.write(json.dumps([a.tolist(), json.loads(request.parameters())]) + "\\n")
            self.log.flush()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", a)]))
        return answers
"""
BATCHES = """
backend: "python"
max_batch_size: 8
input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace.json"


@pytest.fixture
def server(write_model, serve, trace):
    write_model("add_one")
    write_model("seen", SEEN, BATCHES)
    flags = [f"--trace-config=triton,file={trace}", "--trace-config=rate=1"]
    return serve("--log-verbose=0", *flags).ready()


@pytest.fixture
def urls(server):
    return {"http": f"127.0.0.1:{server.port}", "grpc": f"127.0.0.1:{server.says('is ready after')['grpc_port']}"}


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def seen(tmp_path):
    return [json.loads(line) for line in (tmp_path / "models/seen/seen").read_text().splitlines()]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_requests_go_at_their_times_to_their_models_with_their_batches(urls, tmp_path, protocol):
    listed = [{"name": "A", "datatype": "FP32", "shape": [3, 2], "data": [1, 2, 3, 4, 5, 6]}]
    traffic = write(
        tmp_path / "traffic.jsonl",
        {"timestamp": 1700000000400, "model": "seen", "inputs": {"A": [[9, 9]]}, "parameters": {"last": 1}},
        {"timestamp": 1700000000000, "model": "seen", "version": 1, "inputs": listed},
        {"timestamp": 1700000000200, "inputs": {"A": [1, 2, 3, 4, 5]}},
    )
    code, out, err = bench(
        "--replay", traffic, "--replay-speed", 2, "-m", "add_one", "-i", protocol, "-u", urls[protocol],
        "--json", tmp_path / "x.json", "--profile-export-file", tmp_path / "export.json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert figure(out, "Request count") == 3
    assert [each[0] for each in seen(tmp_path)[-2:]] == [[[1, 2], [3, 4], [5, 6]], [[9, 9]]]
    assert seen(tmp_path)[-1][1] == {"last": 1}
    (level,) = json.loads((tmp_path / "x.json").read_text())["levels"]
    assert {name: each["completed"] for name, each in level["models"].items()} == {"seen": 1, "seen:1": 1, "add_one": 1}
    (experiment,) = json.loads((tmp_path / "export.json").read_text())["experiments"]
    sent = sorted((each["timestamp"], each["model"]) for each in experiment["requests"])
    assert [model for _, model in sent] == ["seen:1", "add_one", "seen"]
    assert sent[2][0] - sent[0][0] >= 100e6  # 200, but the first one may be late


def test_a_trace_is_traffic(urls, server, tmp_path, trace):
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"A": [0.5, 7]}, {"A": [1.25, -3]}]}))
    url = urls["http"]
    levels = {"trace_level": ["TIMESTAMPS", "TENSORS"]}
    assert server.ask("POST", "/v2/trace/setting", levels)[0] == 200
    assert bench("-m", "seen", "-u", url, "--request-count", 10, "--input-data", data)[0] == 0
    asked = len(seen(tmp_path))
    until(lambda: trace.exists() and trace.read_text().count("TENSOR_QUEUE_INPUT") == asked, "all are traced")
    traffic = tmp_path / "traffic.jsonl"
    code, out, err = bench("capture", trace, traffic)
    assert (code, err) == (0, "")
    assert out.startswith(f"{asked} requests within ")
    assert server.ask("POST", "/v2/trace/setting", {"trace_level": ["OFF"]})[0] == 200
    code, out, err = bench("--replay", traffic, "-u", url)
    assert (code, err) == (0, "")
    assert figure(out, "Request count") == asked
    values = [each[0] for each in seen(tmp_path)]
    lines = [json.loads(line) for line in traffic.read_text().splitlines()]
    assert [[each["inputs"][0]["data"]] for each in lines] == values[:asked]
    # Behind the one before all.  Those that are due within a moment have connections of their own, and may overtake.
    assert sorted(values[asked + 1 :]) == sorted(values[:asked])


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ({"timestamp": 0}, "line 1.model is"),
        ({"timestamp": 0, "model": "missing", "inputs": {}}, "missing"),
        ({"timestamp": 0, "model": "seen", "inputs": {"X": [1]}}, "line 1.X is no input of the model"),
        ({"timestamp": 0, "model": "seen", "inputs": {}}, "line 1 lacks the input 'A'"),
        ({"timestamp": 0, "model": "seen", "inputs": {"A": [1, 2, 3]}}, "line 1.A"),
    ],
)
def test_a_line_that_cannot_be_sent_is_refused_by_its_number(urls, tmp_path, line, text):
    code, _, err = bench("--replay", write(tmp_path / "traffic.jsonl", line), "-u", urls["http"])
    assert code == 99 and text in err
