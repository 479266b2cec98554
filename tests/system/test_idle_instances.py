"""Nobody waits behind a busy instance while another one is idle: a real server, and workers that wait to be let go."""

from __future__ import annotations

import re
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from tests.system.helpers import until

# An execution of "hold..." waits until a file of its name is there; each execution is told in the log.
HOLDER = """
import json, pathlib, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = pathlib.Path(args["model_repository"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        names = [request.request_id() for request in requests]
        print("executes", *names, flush=True)
        for name in names:
            while name.startswith("hold") and not (self.folder / name).exists():
                time.sleep(0.002)
        answers = [pb_utils.InferenceResponse([pb_utils.Tensor("B", np.zeros((1, 1), np.float32))]) for _ in requests]
        if not self.decoupled:
            return answers
        for request, answer in zip(requests, answers):
            request.get_response_sender().send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
CONFIG = """
backend: "python" max_batch_size: %(rows)d
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { count: %(count)d kind: KIND_CPU } ]
%(more)s
"""
KINDS = {
    "plain": {"rows": 4, "more": ""},
    "batching": {"rows": 4, "more": "dynamic_batching { }"},
    "decoupled": {"rows": 4, "more": "model_transaction_policy { decoupled: true }"},
}


class Holder:
    """A model of this file on a server, and the requests to it."""

    def __init__(self, serve, tmp_path, kind, count=2, flags=()):
        self.folder = tmp_path / "models/holder"
        (self.folder / "1").mkdir(parents=True)
        (self.folder / "1/model.py").write_text(HOLDER)
        (self.folder / "config.pbtxt").write_text(CONFIG % {**KINDS[kind], "count": count})
        self.server = serve(*flags, repository=self.folder.parent).ready()
        ready = self.server.said(lambda r: r.get("event") == "ready", "ready")
        self.grpc = f"127.0.0.1:{ready['grpc_port']}"
        self.metrics = ready["metrics_port"]
        self.pool = ThreadPoolExecutor(32)

    def ask(self, name: str) -> Future:
        """One request by this name, on its way; done with its answer."""
        return self.pool.submit(self._ask, name)

    def _ask(self, name: str) -> str:
        told: Future = Future()
        with grpc_client.InferenceServerClient(self.grpc) as client:
            client.start_stream(lambda result, error: told.set_result(str(error) if error else ""))
            client.async_stream_infer("holder", [one()], request_id=name)
            return told.result(90)

    def executes(self, name: str) -> None:
        """Wait until it does."""
        self.server.said(lambda r: re.search(rf"executes.*\b{name}\b", r["message"]), f"executes {name}")

    def pending(self) -> int:
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics").read().decode()
        return int(float(re.search(r'nv_inference_pending_request_count\{model="holder".*\} (\S+)', text)[1]))

    def let_go(self, name: str = "hold") -> None:
        (self.folder / name).touch()


@pytest.mark.parametrize("kind", KINDS)
def test_requests_behind_a_busy_instance_go_to_the_idle_one(serve, tmp_path, kind):
    holder = Holder(serve, tmp_path, kind)
    held = holder.ask("hold")
    holder.executes("hold")
    for _ in range(3):
        quick = [holder.ask(f"q{i}") for i in range(8)]
        assert [each.result(90) for each in quick] == [""] * 8
    assert not held.done()
    holder.let_go()
    assert held.result(90) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_were_handed_to_two_busy_instances_go_to_the_first_that_is_idle(serve, tmp_path, kind):
    holder = Holder(serve, tmp_path, kind)
    first = holder.ask("hold1")
    holder.executes("hold1")
    second = holder.ask("hold2")
    holder.executes("hold2")
    quick = [holder.ask(f"q{i}") for i in range(8)]
    until(lambda: holder.pending() == 8, "all are there")
    holder.let_go("hold2")
    assert {each.result(90) for each in [second, *quick]} == {""}
    assert not first.done()
    holder.let_go("hold1")
    assert first.result(90) == ""


def test_the_pending_count_has_all_that_no_instance_has_begun(serve, tmp_path):
    holder = Holder(serve, tmp_path, "plain", count=1)
    held = holder.ask("hold")
    holder.executes("hold")
    quick = [holder.ask(f"q{i}") for i in range(4)]
    until(lambda: holder.pending() == 4, "all four are counted")
    holder.let_go()
    assert {each.result(90) for each in [held, *quick]} == {""}
    assert holder.pending() == 0


def test_a_hanging_instance_costs_only_its_own_request(serve, tmp_path):
    holder = Holder(serve, tmp_path, "plain", flags=("--execution-timeout-secs=5",))
    held = holder.ask("hold")
    holder.executes("hold")
    assert [holder.ask(f"q{i}").result(90) for i in range(12)] == [""] * 12
    assert "took longer than the limit of 5 s" in held.result(90)


def test_a_client_that_leaves_frees_what_its_waiting_request_holds(serve, tmp_path):
    holder = Holder(serve, tmp_path, "plain", count=1)
    held = holder.ask("hold")
    holder.executes("hold")
    with grpc_client.InferenceServerClient(holder.grpc) as client:
        told: Future = Future()
        call = client.async_infer("holder", [one()], lambda result, error: told.set_result(error), request_id="left")
        until(lambda: holder.pending() == 1, "it waits")
        call.cancel()
        assert "CANCELLED" in str(told.result(90))
        until(lambda: holder.pending() == 0, "it waits no longer, while the instance is busy")
    assert not held.done()
    holder.let_go()
    assert held.result(90) == ""
    assert not [r for r in holder.server.log if re.search(r"executes.*left", r["message"])]


def one() -> grpc_client.InferInput:
    """The model's input, one row."""
    tensor = grpc_client.InferInput("A", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 1), np.float32))
    return tensor
