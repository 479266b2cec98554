"""--rate-limit=execution_count with a real server: executions of several models that share resources."""

# ruff: noqa: E501  (tables: one case, one line)
from __future__ import annotations

import contextlib
import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.system.helpers import until

NOTED = """
import os
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]

    def execute(self, requests):
        self.note("begins")
        while os.path.exists("GATE"):
            time.sleep(0.005)
        self.note("ends")
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "A").as_numpy())])
            for r in requests
        ]

    def note(self, what):
        with open("TOLD", "a") as file:
            file.write(f"{what} {self.name}\\n")
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
    """Write a model that notes when an execution begins, and when it ends: not while the file `gate` with its name is there."""

    def gate(name):
        return tmp_path / f"gate_{name}"

    def write(name, config=""):
        code = NOTED.replace("TOLD", str(tmp_path / "told")).replace("GATE", str(gate(name)))
        write_model(name, code, CONFIG + config)

    def read(word):
        """The instances of which this is told, in order."""
        path = tmp_path / "told"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [instance for what, instance in lines if what == word]

    def running():
        """How many executed at one time, from line to line."""
        lines = (tmp_path / "told").read_text().splitlines()
        return list(itertools.accumulate(1 if line.startswith("begins") else -1 for line in lines))

    write.gate, write.read, write.running = gate, read, running
    return write


def ask_all(server, names):
    with ThreadPoolExecutor(len(names)) as pool:
        return [status for status, _ in pool.map(server.infer, names)]


@contextlib.contextmanager
def held(told, server, names, begun, pending):
    """Ask all these models while they do not end: as many executions as `begun` begin, and the others wait."""
    for name in set(names):
        told.gate(name).touch()
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            asked = [pool.submit(server.infer, name) for name in names]
            until(lambda: sum(server.pending(name) for name in pending) == len(names) - begun, "they wait")
            until(lambda: len(told.read("begins")) == begun, "they execute")
            yield
            for name in set(names):
                told.gate(name).unlink()
            assert [each.result()[0] for each in asked] == [200] * len(names)
    finally:
        for name in set(names):
            told.gate(name).unlink(missing_ok=True)


def test_executions_of_models_that_share_a_resource_do_not_overlap(told, serve):
    told("a", group(instances=2))
    told("b", group())
    told("free")
    server = serve(ON).ready()
    with held(told, server, ["free"], 1, []):
        assert ask_all(server, ["a", "b"] * 6) == [200] * 12  # the third model shares nothing
        assert len(told.read("ends")) == 12 and max(told.running()) == 2


def test_without_the_flag_resources_limit_nothing(told, serve):
    told("a", group(instances=2))
    server = serve().ready()
    with held(told, server, ["a"] * 2, 2, ["a"]):
        assert sorted(told.read("begins")) == ["a_0_0", "a_0_1"]


def test_the_command_line_says_how_much_there_is(told, serve):
    told("a", group(count=2, instances=3))
    server = serve(ON, "--rate-limit-resource=r:5:0").ready()
    with held(told, server, ["a"] * 12, 2, ["a"]):
        pass
    assert len(told.read("ends")) == 12 and max(told.running()) == 2


def test_priorities_weigh_executions(told, serve):
    """The first execution holds the resource until all have come."""
    told("often", group(priority=1))
    told("seldom", group(priority=4))
    server = serve(ON).ready()
    with held(told, server, ["often", "seldom"] * 20, 1, ["often", "seldom"]):
        pass
    assert 14 <= told.read("begins")[:20].count("often_0_0") <= 18


def test_a_worker_that_dies_gives_back_what_it_held(told, serve, write_model, tmp_path):
    started = tmp_path / "started"
    hang = NOTED.replace('self.note("begins")', f"open({str(started)!r}, 'w').close(); time.sleep(600)")
    write_model("hangs", hang, CONFIG + group())
    told("b", group())
    server = serve(ON).ready()
    with ThreadPoolExecutor(2) as pool:
        hanging = pool.submit(server.infer, "hangs")
        until(started.exists, "it executes")
        waiting = pool.submit(server.infer, "b")
        until(lambda: server.pending("b"), "the other waits")
        os.kill(server.worker("hangs_0_0"), signal.SIGKILL)
        assert waiting.result()[0] == 200
        status, body = hanging.result()
        assert status == 503 and "SIGKILL" in body["error"]


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
