"""How the server ends: who is let go at once, who is waited for, and the delay before."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import time

import numpy as np
import pytest
import tritonclient.grpc as client
import trustme
from tritonclient.utils import InferenceServerException

from tests.system.helpers import ADD_ONE, AN_HOUR, CONFIG, SECONDS_MAX, until

SEQUENCES = """sequence_batching { max_sequence_idle_microseconds: 60000000 }
instance_group [ { count: 3 kind: KIND_CPU } ]
"""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def ends_without_waiting(server) -> None:
    """Of a server that began with AN_HOUR: where it waits for a client, `end` does not see its end."""
    assert server.end() == 0, server.text()


def kept(server, context=None) -> http.client.HTTPConnection:
    """A keep-alive connection that has had one answer."""
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS_MAX)
    else:
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=SECONDS_MAX, context=context)
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().read() == LIVE
    return connection


def grpc_port(server) -> int:
    return server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]


def test_idle_clients_are_let_go_at_once(serve, write_model):
    write_model("m")
    server = serve(AN_HOUR).ready()
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.callback(kept(server).close)
            asked = stack.enter_context(client.InferenceServerClient(f"localhost:{grpc_port(server)}"))
            assert asked.is_server_live()
        ends_without_waiting(server)


def test_idle_clients_that_answer_nothing_are_let_go_too(serve, write_model, tmp_path):
    """A TLS client that does not say goodbye, and one of HTTP/2 that does not even read."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    write_model("m")
    server = serve(AN_HOUR, f"--http-ssl-cert={tmp_path}/both.pem", f"--http-ssl-key={tmp_path}/both.pem").ready()
    with contextlib.ExitStack() as stack:
        stack.callback(kept(server, context).close)
        mute = stack.enter_context(socket.create_connection(("localhost", grpc_port(server))))
        mute.sendall(PREFACE)
        stack.enter_context(socket.create_connection(("localhost", grpc_port(server))))  # has not said a word
        ends_without_waiting(server)


def test_a_running_request_s_answer_closes_its_connection(serve, write_model, tmp_path):
    gate = tmp_path / "gate"
    lines = ("import os, time", f"open({str(gate) + '.seen'!r}, 'w').close()",
             f"while not os.path.exists({str(gate)!r}): time.sleep(0.005)", "return a + 1")  # fmt: skip
    wait = "\n        ".join(lines)
    write_model("m", ADD_ONE.replace("return a + 1", wait))
    server = serve().ready()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS_MAX)
    body = b'{"inputs":[{"name":"A","shape":[1],"datatype":"FP32","data":[1]}]}'
    connection.request("POST", "/v2/models/m/infer", body)
    until(lambda: os.path.exists(f"{gate}.seen"), "executing")
    server.process.send_signal(signal.SIGTERM)
    server.says("Found 1 HTTP service connections")
    gate.touch()
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Connection"]) == (200, "close")
    assert b"2.0" in answer.read()
    assert server.ended() == 0


def test_before_the_end_it_says_so_and_serves_on(serve, write_model):
    write_model("m")
    server = serve("--drain-delay-secs=600").ready()
    open_one = kept(server)
    asked = client.InferenceServerClient(f"localhost:{grpc_port(server)}")
    assert asked.is_server_ready()
    server.process.send_signal(signal.SIGTERM)
    server.says("requests are served for another 600 seconds (--drain-delay-secs)")
    assert server.ask("GET", "/v2/health/ready")[0] == 400  # on a new connection
    assert server.ask("GET", "/v2/health/live")[0] == 200
    assert server.infer("m", [1.0])[1]["outputs"][0]["data"] == [2.0]
    open_one.request("GET", "/v2/models/m/ready")
    answer = open_one.getresponse()
    assert (answer.status, answer.headers["Connection"], answer.read()) == (200, None, b"")
    open_one.close()
    assert asked.is_model_ready("m") and not asked.is_server_ready()
    asked.close()


def test_it_ends_after_the_delay_and_not_before(serve, write_model):
    write_model("m")
    server = serve("--drain-delay-secs=1.5").ready()
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.says("requests are served for another 1.5 seconds (--drain-delay-secs)")
    assert server.ended() == 0
    assert time.monotonic() - began > 1.5
    with pytest.raises(ConnectionRefusedError):
        server.ask("GET", "/v2/health/live")


def test_a_second_signal_does_not_wait_for_the_delay(serve, write_model):
    write_model("m")
    server = serve("--drain-delay-secs=600").ready()
    server.process.send_signal(signal.SIGTERM)
    server.says("requests are served for another 600 seconds")
    assert server.end() == 1


SEQUENCE = """import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
            key = request.correlation_id()
            self.sums[key] = self.sums.get(key, 0) + a
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("B", self.sums[key])]))
        return answers
"""
LIVE = b'{"live":true}'
STOPS = "UNAVAILABLE.*Server is stopping, scheduler for model has stopped accepting new inference requests"


def test_sequences_in_progress_may_end_on_their_connections(serve, write_model):
    write_model("m")
    write_model("s", SEQUENCE, CONFIG + SEQUENCES)
    server = serve().ready()
    tensor = client.InferInput("A", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))
    asked = client.InferenceServerClient(f"localhost:{grpc_port(server)}")
    over_http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS_MAX)

    def ask_http(sequence, **flags):
        value = {"name": "A", "shape": [1], "datatype": "FP32", "data": [1]}
        body = {"inputs": [value], "parameters": {"sequence_id": sequence, **flags}}
        over_http.request("POST", "/v2/models/s/infer", json.dumps(body))
        answer = over_http.getresponse()
        return answer.status, json.loads(answer.read())

    asked.infer("s", [tensor], sequence_id=1, sequence_start=True)
    asked.infer("s", [tensor], sequence_id=2, sequence_start=True)
    assert ask_http(3, sequence_start=True)[0] == 200
    server.process.send_signal(signal.SIGTERM)
    server.says("Found 3 sequences in progress")
    for refused in ({"sequence_id": 4, "sequence_start": True}, {"model_name": "m"}):
        with pytest.raises(InferenceServerException, match=STOPS):
            asked.infer(**{"model_name": "s", "inputs": [tensor], **refused})
    status, body = ask_http(5, sequence_start=True)
    assert status == 503 and body["error"].startswith("Server is stopping")
    assert asked.infer("s", [tensor], sequence_id=1).as_numpy("B") == [2]
    for sequence in (1, 2):
        asked.infer("s", [tensor], sequence_id=sequence, sequence_end=True)
    assert ask_http(3, sequence_end=True)[1]["outputs"][0]["data"] == [2]
    over_http.close()
    asked.close()
    assert server.ended() == 0


def test_a_sequence_that_nobody_goes_on_with_does_not_hold_the_end_up(serve, write_model):
    write_model("s", SEQUENCE, CONFIG + SEQUENCES.replace("60", "1"))
    server = serve(AN_HOUR).ready()
    with client.InferenceServerClient(f"localhost:{grpc_port(server)}") as asked:
        tensor = client.InferInput("A", [1], "FP32").set_data_from_numpy(np.ones(1, np.float32))
        asked.infer("s", [tensor], sequence_id=1, sequence_start=True)
        ends_without_waiting(server)
