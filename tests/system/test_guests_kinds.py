"""What guests serve: objects and backends, batches, streams, calls; and what they cannot."""

from __future__ import annotations

import signal
import subprocess
import threading

import numpy as np
import tritonclient.grpc as grpcclient

from tests.system.guest_scripts import ONE, index, metrics, values
from tests.system.helpers import SECONDS_MAX, in_background, until
from tests.workers.driver import WORKERS
from tests.workers.pythons import interpreters


def test_instances_are_threads_that_execute_at_one_time(serve_guests, join):
    server = serve_guests()
    join(
        """
together = threading.Barrier(2, timeout=80)
class Both(Add):
    def execute(self, requests):
        if any(request.request_id() == "meet" for request in requests):
            together.wait()
        return super().execute(requests)
with join(DIRECTORY) as server:
    server.serve("both", TENSORS, Both(1), instances=2)
    say("serving")
    server.wait()
"""
    ).says("serving")
    tensor = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1.0]}
    met: list[int] = []
    request = {"id": "meet", "inputs": [tensor]}
    threads = [
        in_background(lambda: met.append(server.ask("POST", "/v2/models/both/infer", request)[0])) for _ in range(2)
    ]
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert met == [200, 200]


def test_requests_that_wait_are_executed_together(serve_guests, join):
    server = serve_guests()
    guest = join(
        """
class Batches:
    def execute_batch(self, inputs):
        say("batch of", len(inputs["A"]))
        sys.stdin.readline()
        return {"B": inputs["A"] + 1}
with join(DIRECTORY) as server:
    server.serve("batches", TENSORS + "max_batch_size: 64 dynamic_batching { }", Batches())
    say("serving")
    server.wait()
"""
    )
    guest.says("serving")
    body = {"inputs": [{"name": "A", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}]}
    answers: list[tuple[int, dict]] = []

    def ask() -> None:
        answers.append(server.ask("POST", "/v2/models/batches/infer", body))

    asking = [in_background(ask)]
    guest.says("batch of 1")
    asking += [in_background(ask) for _ in range(8)]

    def pending() -> bool:
        return 'nv_inference_pending_request_count{model="batches",version="1"} 8' in metrics(server)

    until(pending, "eight wait")
    guest.tell("go")
    guest.tell("go")
    guest.tell("go")
    for thread in asking:
        thread.join(SECONDS_MAX)
    assert [status for status, _ in answers] == [200] * 9
    assert all(values(answer) == [2.0, 3.0] for _, answer in answers)
    assert server.ask("GET", "/v2/models/batches/stats")[1]["model_stats"][0]["execution_count"] < 9


def test_a_decoupled_model_of_a_guest_streams(serve_guests, join, connect):
    server = serve_guests()
    join(
        """
class Counts:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.stream, args=(request.get_response_sender(), int(array(request)[0]))).start()
    def stream(self, sender, count):
        for number in range(count):
            sender.send(answer(np.array([number], np.float32)))
        sender.send(flags=pb.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
with join(DIRECTORY) as server:
    server.serve("counts", TENSORS + "model_transaction_policy { decoupled: true }", Counts())
    say("serving")
    server.wait()
"""
    ).says("serving")
    client = connect(server, grpcclient)
    found: list[float] = []
    over = threading.Event()

    def heard(result, error) -> None:
        assert error is None, error
        tensor = result.as_numpy("B")
        if tensor is not None and len(tensor):
            found.append(float(tensor[0]))
        if len(found) == 100:
            over.set()

    client.start_stream(heard)
    tensor = grpcclient.InferInput("A", [1], "FP32")
    tensor.set_data_from_numpy(np.array([100], np.float32))
    client.async_stream_infer("counts", [tensor])
    assert over.wait(SECONDS_MAX)
    client.stop_stream()
    assert found == list(range(100))


def test_a_guests_model_asks_others_and_is_asked_by_them(serve_guests, join, write_model):
    write_model("repository")
    server = serve_guests()
    join(
        """
class Asks:
    def execute(self, requests):
        assert pb.is_model_ready("repository") and pb.get_model_dir() == ""
        found = []
        for request in requests:
            call = pb.InferenceRequest(model_name="repository", requested_output_names=["B"],
                                       inputs=[pb.Tensor("A", array(request))])
            reply = call.exec()
            assert not reply.has_error(), reply.error().message()
            found.append(answer(pb.get_output_tensor_by_name(reply, "B").as_numpy() * 10))
        return found
with join(DIRECTORY) as server:
    server.serve("asks", TENSORS, Asks())
    say("serving")
    server.wait()
"""
    ).says("serving")
    assert values(server.infer("asks", [1.0, 2.0])[1]) == [20.0, 30.0]
    large = [float(number % 7) for number in range(50_000)]  # by reference both ways
    assert values(server.infer("asks", large)[1]) == [10 * (number + 1) for number in large]


def test_backends_are_as_good_as_objects_and_errors_reach_the_client(serve_guests, join):
    server = serve_guests()
    join(
        """
from tisfast_worker.backend import ArrayBackend
class Doubles(ArrayBackend):
    def execute_arrays(self, inputs):
        return {"B": inputs["A"] * 2}
class Fails:
    def execute(self, requests):
        raise ValueError("as it must")
with join(DIRECTORY) as server:
    server.serve("doubles", TENSORS, Doubles)
    server.serve("fails", TENSORS, Fails())
    server.serve("each", TENSORS, [Add(1), Add(1)])
    say("serving", *server.models)
    server.wait()
"""
    ).says("serving doubles each fails")
    server.says("'each' version 1 of guest '-c'")
    assert values(server.infer("doubles", [3.0])[1]) == [6.0]
    status, answer = server.infer("fails")
    assert status == 500 and "ValueError: as it must" in answer["error"]
    assert "as it must" in server.said(lambda r: "raised" in r["message"], "the traceback")["traceback"]


def test_what_cannot_be_served_is_refused_with_a_sentence(serve_guests, join, write_model):
    write_model("taken")
    server = serve_guests()
    guest = join(
        """
from tisfast_worker.backend import ArrayBackend
class Cannot(ArrayBackend):
    def initialize(self):
        raise OSError("no weights")
def attempt(name, config, backend, **more):
    try:
        server.serve(name, config, backend, **more)
    except GuestError as error:
        say(name, "refused:", error)
with join(DIRECTORY) as server:
    server.serve("mine", TENSORS, Add(1))
    attempt("cannot", TENSORS, Cannot)
    attempt("kind", TENSORS, 3)
    attempt("syntax", "input [", Add(1))
    attempt("key", {"inputs": []}, Add(1))
    attempt("mine", TENSORS, Add(1))
    attempt("taken", TENSORS, Add(1))
    attempt("file", TENSORS.replace('name: "B"', 'name: "B" label_filename: "labels.txt"'), Add(1))
    attempt("ensemble", 'platform: "ensemble"', Add(1))
    attempt("many", TENSORS, Add(1), instances=65)
    attempt("a/b", TENSORS, Add(1))
    say("done")
    server.wait()
"""
    )
    guest.says("done")
    expected = {
        "cannot": "OSError: no weights", "kind": "3 is neither an object with execute(requests)",
        "syntax": "configuration of guest's model 'syntax'", "key": "inputs", "mine": "served by this guest already",
        "taken": "is in a model repository of this server", "file": "labels.txt", "ensemble": "is an ensemble",
        "many": "64 are the limit", "a/b": "is no name of a model",
    }  # fmt: skip
    for name, text in expected.items():
        assert text in guest.says(f"{name} refused: "), name
    assert {name for name, (state, _) in index(server).items() if state == "READY"} == {"mine", "taken"}
    assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_a_name_is_a_guests_or_a_repositorys(serve_guests, join, write_model):
    server = serve_guests("--model-control-mode=explicit")
    guest = join(ONE.format(backend="Add(1)", gate=""))
    guest.says("serving")
    write_model("one")
    status, answer = server.ask("POST", "/v2/repository/models/one/load", {})
    assert status == 400 and f"(pid {guest.pid})" in answer["error"]
    status, answer = server.ask("POST", "/v2/repository/models/one/unload", {})
    assert status == 400 and "leaves with it" in answer["error"]
    assert server.infer("one")[0] == 200
    other = join(
        """
try:
    join(DIRECTORY, name="second").serve("one", TENSORS, Add(1))
except GuestError as error:
    say("refused:", error)
"""
    )
    other.says("is in a model repository")
    guest.end()
    until(lambda: index(server)["one"][0] == "UNAVAILABLE", "it is gone")
    assert server.ask("POST", "/v2/repository/models/one/load", {})[0] == 200
    assert server.infer("one")[0] == 200 and server.ask("GET", "/v2/health/ready")[0] == 200


def test_a_hung_model_is_let_go_and_its_process_lives(serve_guests, join, tmp_path):
    server = serve_guests("--execution-timeout-secs=10")
    gate = tmp_path / "gate"
    guest = join(
        f"""
GATE = {str(gate)!r}
with join(DIRECTORY) as server:
    server.serve("one", TENSORS, Gated(1))
    server.serve("two", TENSORS, Add(2))
    say("serving")
    try:
        server.wait()
    except GuestError as error:
        say("told:", error)
    sys.stdin.readline()
    server.serve("one", TENSORS, Add(1))
    say("again")
    server.wait()
"""
    )
    guest.says("serving")
    status, answer = server.infer("one")
    assert status == 503 and "execution took longer than the limit of 10 s" in answer["error"]
    assert "execution took longer" in guest.says("told:")
    until(lambda: index(server)["one"][0] == "UNAVAILABLE", "the index says so")
    assert server.infer("two")[0] == 200
    gate.touch()
    guest.tell("go on")
    guest.says("again")
    assert server.infer("one")[0] == 200


KEEPS = """
class Keeps:
    def __init__(self):
        self.kept = []
    def execute(self, requests):
        for request in requests:
            self.kept += [request, array(request)]
        return [answer(array(request)) for request in requests]
class Streams:
    def __init__(self):
        self.senders = []
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(answer(array(request)))
            self.senders.append(sender)
class Counts(Add):
    family = None
    def execute(self, requests):
        if self.family is None:
            self.family = pb.MetricFamily("guest_total", "Of a guest", pb.MetricFamily.COUNTER)
            self.metric = self.family.Metric({{}})
        self.metric.increment(1)
        return super().execute(requests)
class Waits:
    def execute(self, requests):
        call = pb.InferenceRequest(model_name="one", requested_output_names=["B"],
                                   inputs=[pb.Tensor("A", array(requests[0]))])
        reply = call.exec()
        say("called:", reply.error().message() if reply.has_error() else "answered")
        called.set()
        return [answer(array(request)) for request in requests]
GATE = {gate!r}
server = join(DIRECTORY)
called = threading.Event()
keeps, streams, counts = Keeps(), Streams(), Counts(1)
server.serve("keeps", TENSORS, keeps)
server.serve("streams", TENSORS + "model_transaction_policy {{ decoupled: true }}", streams)
server.serve("counts", TENSORS, counts)
server.serve("one", TENSORS, Gated(1))
server.serve("waits", TENSORS, Waits())
say("serving")
try:
    server.wait()
except ServerGone as gone:
    say("gone:", gone)
counts.metric.increment(1)
called.wait(80)
try:
    streams.senders[0].send(answer(np.zeros(1, np.float32)))
    say("sent")
except Exception as error:
    say("stream:", type(error).__name__, error)
say("sum", sum(float(each.sum()) for each in keeps.kept[1::2]))
keeps.kept.clear(); streams.senders.clear(); del counts.metric, counts.family
gc.collect()
say("the end")
"""


def test_what_user_code_keeps_outlives_the_server(serve_guests, join, tmp_path, connect):
    server = serve_guests()
    guest = join(KEEPS.format(gate=str(tmp_path / "gate")))
    guest.says("serving")
    assert server.infer("keeps", [1.0, 2.0])[0] == 200 and server.infer("counts")[0] == 200
    assert "guest_total 1" in metrics(server)
    client = connect(server, grpcclient)
    answered = threading.Event()
    client.start_stream(lambda result, error: answered.set())
    tensor = grpcclient.InferInput("A", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, np.float32))
    client.async_stream_infer("streams", [tensor])
    assert answered.wait(SECONDS_MAX)
    in_background(lambda: server.infer("waits"))
    guest.says("executing")  # `one`, for `waits`
    server.end(signal.SIGKILL)
    guest.says("gone: ")
    guest.says("called: this instance is served no more")
    guest.says("stream: ")
    guest.says("sum 3.0")
    guest.says("the end")
    client.stop_stream(cancel_requests=True)
    assert guest.ended() == 0


def test_every_python_from_3_8_on_can_be_a_guest(serve_guests, directory):
    """Also without numpy: what a request brings is sent back."""
    server = serve_guests()
    code = """
import sys
sys.path.append(sys.argv[2])
from tisfast_worker.guest import join
import triton_python_backend_utils as pb
CONFIG = {"input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}],
          "output": [{"name": "A", "data_type": "TYPE_FP32", "dims": [-1]}]}
class Echo:
    def execute(self, requests):
        return [pb.InferenceResponse(request.inputs()) for request in requests]
with join(sys.argv[1]) as server:
    server.serve("echo", CONFIG, Echo())
    print("serving", flush=True)
    sys.stdin.readline()
"""
    for python in interpreters():
        command = [python, "-I", "-c", code, str(directory), str(WORKERS)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guest:
            assert guest.stdout.readline() == "serving\n", python
            assert values(server.infer("echo", [5.0])[1]) == [5.0]
            guest.communicate("\n", SECONDS_MAX)
        assert guest.returncode == 0, python


def test_who_lost_its_name_goes_on_when_its_last_request_hangs(serve_guests, join, tmp_path):
    server = serve_guests("--execution-timeout-secs=3")
    first = join(
        f"""
class Hangs:
    def execute(self, requests):
        open({str(tmp_path / "begun")!r}, "w").close()
        threading.Event().wait()

with join(DIRECTORY) as server:
    server.serve("one", TENSORS, Hangs())
    say("serving")
    sys.stdin.readline()
    try:
        say("waits:", server.wait(0), server.models)
    except GuestError as error:
        say("waits:", error)
    sys.stdin.readline()
"""
    )
    first.says("serving")
    second = join(
        """
with join(DIRECTORY) as server:
    say("joined")
    sys.stdin.readline()
    server.serve("one", TENSORS, Add(1), take_over=True)
    say("serving")
    sys.stdin.readline()
"""
    )
    second.says("joined")  # to start takes long on a busy machine, and the request's time would be over
    answers = []
    asking = threading.Thread(target=lambda: answers.append(server.infer("one")))
    asking.start()
    until((tmp_path / "begun").exists, "it executes")
    second.tell("take it over")
    second.says("serving")
    asking.join(SECONDS_MAX)
    [(status, answer)] = answers
    assert status == 503 and "execution took longer than the limit of 3 s" in answer["error"]
    first.tell("look")
    assert first.says("waits:") == "waits: False ['one']"
    assert server.infer("one")[0] == 200
