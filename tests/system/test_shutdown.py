"""How the server ends (rows 26.03 to 26.08): who is let go at once, who is waited for, and the delay before."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import ssl
import time

import pytest
import tritonclient.grpc as client
import trustme

from tests.system.conftest import ADD_ONE, until

IDLE_SECONDS_MAX = 5
"""Generous, for a busy machine; Triton waits 30.  What it takes is printed."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def seconds_to_end(server) -> float:
    began = time.monotonic()
    assert server.end() == 0, server.text()
    seconds = time.monotonic() - began
    print(f"SIGTERM to exit: {seconds:.2f} s")
    return seconds


def kept(server, context=None) -> http.client.HTTPConnection:
    """A keep-alive connection that has had one answer."""
    if context is None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    else:
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().read() == b""
    return connection


def grpc_port(server) -> int:
    return server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]


def test_idle_clients_are_let_go_at_once(serve, write_model):
    write_model("m")
    server = serve().ready()
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.callback(kept(server).close)
            asked = stack.enter_context(client.InferenceServerClient(f"localhost:{grpc_port(server)}"))
            assert asked.is_server_live()
        assert seconds_to_end(server) < IDLE_SECONDS_MAX


def test_idle_clients_that_answer_nothing_are_let_go_too(serve, write_model, tmp_path):
    """A TLS client that does not say goodbye, and one of HTTP/2 that does not even read."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    write_model("m")
    server = serve(f"--http-ssl-cert={tmp_path}/both.pem", f"--http-ssl-key={tmp_path}/both.pem").ready()
    with contextlib.ExitStack() as stack:
        stack.callback(kept(server, context).close)
        mute = stack.enter_context(socket.create_connection(("localhost", grpc_port(server))))
        mute.sendall(PREFACE)
        stack.enter_context(socket.create_connection(("localhost", grpc_port(server))))  # has not said a word
        assert seconds_to_end(server) < IDLE_SECONDS_MAX


def test_a_running_request_s_answer_closes_its_connection(serve, write_model, tmp_path):
    gate = tmp_path / "gate"
    lines = ("import os, time", f"open({str(gate) + '.seen'!r}, 'w').close()",
             f"while not os.path.exists({str(gate)!r}): time.sleep(0.005)", "return a + 1")  # fmt: skip
    wait = "\n        ".join(lines)
    write_model("m", ADD_ONE.replace("return a + 1", wait))
    server = serve().ready()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
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
    server = serve("--drain-delay-secs=1.5").ready()
    open_one = kept(server)
    asked = client.InferenceServerClient(f"localhost:{grpc_port(server)}")
    assert asked.is_server_ready()
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.says("requests are served for another 1.5 seconds (--drain-delay-secs)")
    assert server.ask("GET", "/v2/health/ready")[0] == 400  # on a new connection
    assert server.ask("GET", "/v2/health/live")[0] == 200
    assert server.infer("m", [1.0])[1]["outputs"][0]["data"] == [2.0]
    open_one.request("GET", "/v2/models/m/ready")
    answer = open_one.getresponse()
    assert (answer.status, answer.headers["Connection"], answer.read()) == (200, None, b"")
    open_one.close()
    assert asked.is_model_ready("m") and not asked.is_server_ready()
    asked.close()
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
