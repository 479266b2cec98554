"""Generate and streams of events from a real server, with clients that people use."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading

import httpx
import pytest

from tests.system.helpers import until

COUNTER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            n = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            for i in range(n):
                if request.is_cancelled():
                    print(f"stopped after {i}", flush=True)
                    break
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([i], dtype=np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
COUNTER_CONFIG = """
backend: "python"
model_transaction_policy { decoupled: true }
input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "I" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
INFER = {"inputs": [{"name": "N", "shape": [1], "datatype": "INT32", "data": [3]}]}
EVENTS = {"Accept": "text/event-stream"}


@pytest.fixture
def server(serve, write_model):
    """Serves `counter`, decoupled, and `add_one`."""
    write_model("counter", COUNTER, COUNTER_CONFIG)
    write_model("add_one")
    return serve().ready()


def events(server, verb, body, headers=None, model="counter"):
    """Status, content type and the values of all events."""
    url = f"http://127.0.0.1:{server.port}/v2/models/{model}/{verb}"
    with httpx.stream("POST", url, json=body, headers=headers or {}) as answer:
        values = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    return answer.status_code, answer.headers["content-type"], values


def test_a_stream_has_an_event_for_each_response(server):
    status, kind, values = events(server, "generate_stream", {"N": 1000})
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    assert [value["I"] for value in values] == list(range(1000))


def test_infer_streams_when_events_are_accepted(server):
    status, _, values = events(server, "infer", INFER, EVENTS)
    assert status == 200
    outputs = [value["outputs"] for value in values]
    assert outputs == [[{"name": "I", "datatype": "INT32", "shape": [1], "data": [i]}] for i in range(3)]
    assert {(value["model_name"], value["model_version"]) for value in values} == {("counter", "1")}


def test_a_model_of_one_response_has_one_event(server):
    _, _, values = events(server, "generate_stream", {"A": [1, 2]}, model="add_one")
    assert [value["B"] for value in values] == [[2.0, 3.0]]


def test_without_events_a_decoupled_model_is_not_inferred(server):
    status, answer = server.ask("POST", "/v2/models/counter/infer", INFER)
    assert status == 501
    assert "doesn't support models with decoupled transaction policy" in answer["error"]


def test_generate_answers_at_once(server):
    status, answer = server.ask("POST", "/v2/models/counter/generate", {"N": 1, "id": "q"})
    assert (status, answer) == (200, {"id": "q", "model_name": "counter", "model_version": "1", "I": 0})


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_shows_a_stream(server):
    url = f"http://127.0.0.1:{server.port}/v2/models/counter/generate_stream"
    done = subprocess.run(["curl", "-sN", url, "-d", '{"N":2}'], capture_output=True, text=True, timeout=60, check=True)
    start = 'data: {"model_name":"counter","model_version":"1",'
    assert done.stdout == f'{start}"I":0}}\n\n{start}"I":1}}\n\n'


def test_a_client_that_leaves_stops_the_model(server):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        body = b'{"N":100000000}'
        head = b"POST /v2/models/counter/generate_stream HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        client.sendall(head + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    server.says("stopped after")
    assert server.ask("POST", "/v2/models/counter/generate", {"N": 1})[0] == 200


def test_many_streams_at_once_and_a_drain_that_waits_for_them(server):
    counts: list[int] = []

    def read() -> None:
        counts.append(len(events(server, "generate_stream", {"N": 2000})[2]))

    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    until(lambda: counts, "a stream ends")
    for reader in readers:
        reader.join()
    assert counts == [2000] * 8
    assert server.end() == 0
