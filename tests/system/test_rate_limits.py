"""--rate-limit=execution_count with a real server: executions of several models that share resources."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import http.client
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.conftest import until

TIMED = """
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]

    def execute(self, requests):
        began = time.monotonic()
        time.sleep(0.01)
        with open("TOLD", "a") as file:
            file.write(f'["{self.name}", {began}, {time.monotonic()}]\\n')
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
            for r in requests
        ]
"""
CONFIG = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
ON = "--rate-limit=execution_count"


def group(count=1, instances=1, priority=1, scope=""):
    limiter = f'rate_limiter {{ resources [ {{ name: "R" count: {count} {scope} }} ] priority: {priority} }}'
    return f"instance_group [ {{ count: {instances} kind: KIND_CPU {limiter} }} ]"


@pytest.fixture
def told(tmp_path, write_model):
    """Write a model that notes when it executes; `told()` has (instance, start, end) of all executions."""

    def write(name, config=""):
        write_model(name, TIMED.replace("TOLD", str(tmp_path / "told")), CONFIG + config)

    def read():
        return [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]

    write.read = read
    return write


def ask_all(server, names):
    with ThreadPoolExecutor(len(names)) as pool:
        return [status for status, _ in pool.map(server.infer, names)]


def overlaps(times):
    ordered = sorted((start, end) for _, start, end in times)
    return any(end > start for (_, end), (start, _) in zip(ordered, ordered[1:], strict=False))


def test_executions_of_models_that_share_a_resource_do_not_overlap(told, serve):
    told("a", group(instances=2))
    told("b", group())
    told("free")
    server = serve(ON).ready()
    assert ask_all(server, ["a", "b", "free"] * 6) == [200] * 18
    limited = [each for each in told.read() if each[0][0] in "ab"]
    assert len(limited) == 12 and not overlaps(limited)
    assert overlaps(told.read())  # the third model shares nothing


def test_without_the_flag_resources_limit_nothing(told, serve):
    told("a", group(instances=2))
    server = serve().ready()
    assert ask_all(server, ["a"] * 8) == [200] * 8
    assert overlaps(told.read())


def test_the_command_line_says_how_much_there_is(told, serve):
    told("a", group(count=2, instances=3))
    server = serve(ON, "--rate-limit-resource=r:5:0").ready()
    assert ask_all(server, ["a"] * 12) == [200] * 12
    times = told.read()
    at_once = [sum(s <= start < e for _, s, e in times) for _, start, _ in times]
    assert max(at_once) == 2


def test_priorities_weigh_executions(told, serve):
    told("often", group(priority=1))
    told("seldom", group(priority=4))
    server = serve(ON).ready()
    assert ask_all(server, ["often", "seldom"] * 20) == [200] * 40
    first = [name for name, _, _ in told.read()[:20]]
    assert 14 <= first.count("often_0_0") <= 18


def test_a_worker_that_dies_gives_back_what_it_held(told, serve, write_model, tmp_path):
    started = tmp_path / "started"
    hang = TIMED.replace("time.sleep(0.01)", f"open({str(started)!r}, 'w').close(); time.sleep(60)")
    write_model("hangs", hang, CONFIG + group())
    told("b", group())
    server = serve(ON).ready()
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(server.infer, "hangs")
        until(started.exists, "it executes")
        waiting = pool.submit(server.infer, "b")
        until(lambda: pending(server, "b"), "the other waits")
        os.kill(server.worker("hangs_0_0"), signal.SIGKILL)
        assert waiting.result()[0] == 200
        status, body = hanging.result()
        assert status == 503 and "SIGKILL" in body["error"]


def pending(server, model):
    port = server.said(lambda r: r.get("event") == "ready", "ready")["metrics_port"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return f'nv_inference_pending_request_count{{model="{model}",version="1"}} 1' in text


@pytest.mark.parametrize(
    ("flags", "config", "text"),
    [
        (["--rate-limit-resource=R:2"], group(count=4), 'Resource count for "R" is limited to 2 which will prevent scheduling of one or more model instances, the minimum required count is 4'),
        ([], 'instance_group [ { rate_limiter { resources [ { name: "R" count: 1 }, { name: "R" count: 1 global: true } ] } } ]', 'Resource "R" is present as both global and device-specific resource in the model configuration.'),
    ],
)  # fmt: skip
def test_what_can_never_run_is_not_loaded(told, serve, flags, config, text):
    told("a", config)
    server = serve(ON, "--exit-on-error=false", *flags).ready()
    [entry] = server.ask("POST", "/v2/repository/index")[1]
    assert entry["reason"] == f"Invalid argument: {text}"


def test_the_configuration_is_shown(told, serve):
    told("a", group(count=3, priority=2))
    server = serve(ON).ready()
    [shown] = server.ask("GET", "/v2/models/a/config")[1]["instance_group"]
    assert shown["rate_limiter"] == {"resources": [{"name": "R", "global": False, "count": 3}], "priority": 2}


CALLS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for r in requests:
            a = pb_utils.get_input_tensor_by_name(r, "A")
            call = pb_utils.InferenceRequest(model_name="CALLEE", requested_output_names=["B"], inputs=[a])
            told = call.exec()
            if told.has_error():
                answers.append(pb_utils.InferenceResponse([], error=told.error()))
            else:
                answers.append(pb_utils.InferenceResponse([pb_utils.get_output_tensor_by_name(told, "B")]))
        return answers
"""


def test_a_call_that_waits_for_what_its_caller_holds_is_refused(told, serve, write_model):
    """In Triton both wait for ever (its issue 8358)."""
    write_model("caller", CALLS.replace("CALLEE", "callee"), CONFIG + group())
    write_model("first", CALLS.replace("CALLEE", "between"), CONFIG + group())
    write_model("between", CALLS.replace("CALLEE", "callee"), CONFIG)
    told("callee", group())
    server = serve(ON).ready()
    for model in ("caller", "first"):
        status, body = server.infer(model)
        assert status == 503 and "needs resources (rate_limiter) that are held" in body["error"], body
    for model in ("between", "callee"):
        status, body = server.infer(model)
        assert status == 200, body


def test_a_call_that_has_enough_beside_its_caller_is_answered(told, serve, write_model):
    write_model("caller", CALLS.replace("CALLEE", "callee"), CONFIG + group())
    told("callee", group())
    server = serve(ON, "--rate-limit-resource=R:2").ready()
    assert ask_all(server, ["caller"] * 4) == [200] * 4
