"""Sequences through the real server, with real clients and workers that die."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from tests.system.helpers import ROOT, until

EXAMPLES = ROOT / "examples/sequences"
SUM = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(place, request) for place, request in enumerate(requests)]

    def answer(self, place, request):
        number, start, ready = (
            int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0, 0]) for name in ("A", "START", "READY"))
        if not ready:
            return pb_utils.InferenceResponse([])
        while number == 13 and os.path.exists(GATE):
            open(GATE + ".seen", "w").close()
            time.sleep(0.005)
        self.sums[place] = number + (0 if start else self.sums[place])
        return pb_utils.InferenceResponse([pb_utils.Tensor("B", np.array([[self.sums[place], place]], np.int32))])
"""
CONFIG = """
backend: "python"
max_batch_size: 8
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] }
  ]
}
input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "B" data_type: TYPE_INT32 dims: [ 2 ] } ]
instance_group [ { count: COUNT } ]
"""


@pytest.fixture
def gate(tmp_path):
    """A file; while it is there, number 13 is not added."""
    return tmp_path / "gate"


@pytest.fixture
def server(serve, write_model, gate):
    """A server of model `sum` with two instances."""
    write_model("sum", f"GATE = {str(gate)!r}\n" + SUM, CONFIG.replace("COUNT", "2"))
    return serve().ready()


def add(server, number, sequence, **flags):
    """One request over HTTP."""
    tensor = {"name": "A", "datatype": "INT32", "shape": [1, 1], "data": [number]}
    parameters = {"sequence_id": sequence, **{f"sequence_{flag}": value for flag, value in flags.items()}}
    return server.ask("POST", "/v2/models/sum/infer", {"inputs": [tensor], "parameters": parameters})


def total(answer):
    """The sum in an answer."""
    status, body = answer
    assert status == 200, body
    return body["outputs"][0]["data"][0]


def test_sequences_side_by_side_over_http(server):
    def one(sequence):
        return [total(add(server, n, sequence, start=n == 0, end=n == 19)) for n in range(20)]

    with ThreadPoolExecutor(24) as pool:  # more than there are slots
        found = list(pool.map(one, range(1, 25)))
    assert found == [[n * (n + 1) // 2 for n in range(20)]] * 24


def test_sequences_of_one_grpc_stream(server):
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    answers: queue.Queue = queue.Queue()
    with grpcclient.InferenceServerClient(f"localhost:{port}") as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for n in range(50):
            for sequence in (3, "three"):
                tensor = grpcclient.InferInput("A", [1, 1], "INT32")
                tensor.set_data_from_numpy(np.array([[n]], np.int32))
                client.async_stream_infer(
                    "sum", [tensor], request_id=f"{sequence} {n}", sequence_id=sequence, sequence_start=n == 0,
                    sequence_end=n == 49)  # fmt: skip
        found = {}
        for _ in range(100):
            result, error = answers.get(timeout=60)
            assert error is None
            found[result.get_response().id] = int(result.as_numpy("B")[0, 0])
        client.stop_stream()
    assert found == {f"{s} {n}": n * (n + 1) // 2 for n in range(50) for s in (3, "three")}


def test_an_http_client_of_tritonclient(server):
    with httpclient.InferenceServerClient(f"localhost:{server.port}") as client:
        tensor = httpclient.InferInput("A", [1, 1], "INT32")
        tensor.set_data_from_numpy(np.array([[5]], np.int32))
        first = client.infer("sum", [tensor], sequence_id=2**63 + 1, sequence_start=True)
        second = client.infer("sum", [tensor], sequence_id=2**63 + 1, sequence_end=True)
    assert [int(answer.as_numpy("B")[0, 0]) for answer in (first, second)] == [5, 10]


def test_a_sequence_dies_with_its_worker_and_begins_anew(server):
    assert total(add(server, 1, 7, start=True)) == 1
    assert total(add(server, 1, 8, start=True)) == 1
    mark = len(server.log)
    os.kill(server.worker("sum_0_0"), signal.SIGKILL)
    server.says("instance sum_0_0 is ready", after=mark)
    answers = {sequence: add(server, 1, sequence) for sequence in (7, 8)}
    lost, kept = sorted(answers, key=lambda sequence: -answers[sequence][0])
    assert total(answers[kept]) == 2
    status, body = answers[lost]
    assert status == 503
    assert f"sequence {lost} of model 'sum' is lost: instance sum_0_0" in body["error"]
    assert add(server, 1, lost)[0] == 503
    assert total(add(server, 4, lost, start=True)) == 4
    assert total(add(server, 4, lost, end=True)) == 8


def test_what_is_queued_for_a_worker_that_dies_is_answered(server, gate):
    gate.touch()
    total(add(server, 1, 7, start=True))
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(add, server, 13, 7)
        until(lambda: os.path.exists(f"{gate}.seen"), "executing")
        queued = [pool.submit(add, server, 1, 7) for _ in range(3)]
        until(lambda: in_flight(server) == 4, "queued")
        for name in ("sum_0_0", "sum_0_1"):
            os.kill(server.worker(name), signal.SIGKILL)
        answers = [future.result() for future in (running, *queued)]
    assert [status for status, _ in answers] == [503] * 4
    assert "while it executed this request" in answers[0][1]["error"]


def in_flight(server):
    """Requests of the model that have come and are not answered: connections that wait."""
    return sum(
        each.status == "ESTABLISHED" and each.laddr.port == server.port
        for each in server.family()[0].net_connections("tcp4")
    )


def test_a_client_that_leaves_ends_its_sequence(server, gate):
    gate.touch()
    total(add(server, 1, 7, start=True))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(add, server, 13, 7)
        until(lambda: os.path.exists(f"{gate}.seen"), "executing")
        ahead = leave(server, 7)  # may have been sent ahead; what comes behind it waits in the queue
        leaving = leave(server, 7)
        until(lambda: in_flight(server) == 3, "queued")
        leaving.close()
        ahead.close()
        until(lambda: in_flight(server) == 1, "gone")
        gate.unlink()
        assert total(running.result()) == 14
    status, body = add(server, 1, 7)
    assert status == 400
    assert "must specify the START flag" in body["error"]


def leave(server, sequence):
    """A connection on which one request of the sequence has been sent."""
    tensor = b'{"name":"A","datatype":"INT32","shape":[1,1],"data":[1]}'
    body = b'{"inputs":[%b],"parameters":{"sequence_id":%d}}' % (tensor, sequence)
    connection = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def test_the_example_client_finds_its_sums_and_countdowns(serve):
    server = serve(repository=EXAMPLES).ready()
    run = subprocess.run(
        [sys.executable, str(Path(ROOT, "examples/sequences_client.py")), "--url", f"localhost:{server.port}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "300 executions" in run.stdout
