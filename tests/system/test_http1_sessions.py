"""The HTTP/1.1 sessions beside others: our client asks our server and Python's, curl asks our server session."""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import struct
import subprocess
import threading
from contextlib import contextmanager

import pytest

from tests.http1_client import Connection
from tests.system.helpers import ROOT
from tisfast.errors import BadResponse
from tisfast.wire.client_head import chunk
from tisfast.wire.http1 import Http1Server

INFER = "/v2/models/add_sub/infer"
FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def add_sub(*, binary):
    inputs = [
        {
            "name": name,
            "shape": [4],
            "datatype": "FP32",
            **({"parameters": {"binary_data_size": 16}} if binary else {"data": [1, 2, 3, 4]}),
        }
        for name in ("INPUT0", "INPUT1")
    ]
    return json.dumps({"inputs": inputs, "parameters": {"binary_data_output": binary}}).encode()


@pytest.fixture
def examples(serve):
    return serve(repository=ROOT / "examples/models").ready()


def test_our_server_answers_our_client(examples):
    text = add_sub(binary=False)
    with Connection(examples.port) as client:
        assert json.loads(client.ask("GET", "/v2").body)["name"] == "triton"
        for _ in range(3):  # the same head again and again
            answer = client.ask("POST", INFER, text)
            assert [o["data"] for o in json.loads(answer.body)["outputs"]] == [[2, 4, 6, 8], [0, 0, 0, 0]]
        head = client.head("POST", INFER)
        tensors = add_sub(binary=True)
        client.send(head, head.with_body(len(tensors) + 32, len(tensors)) + tensors + FLOATS * 2)
        answer = client.read()
        assert answer.body[answer.head.inference_header_length :] == struct.pack("<8f", 2, 4, 6, 8, 0, 0, 0, 0)
        pieces = [text[i : i + 30] for i in range(0, len(text), 30)]
        client.send(head, head.in_chunks() + b"".join(map(chunk, [*pieces, b""])))
        assert client.read().head.status == 200
        client.send(head, head.with_body(len(text), expect_continue=True))
        assert client.interim() == 100
        client.socket.sendall(text)
        assert client.read().head.status == 200
        assert client.session.reusable
    examples.end()


def test_our_server_answers_requests_that_are_sent_together(examples):
    with Connection(examples.port) as client:
        live, missing = client.head("GET", "/v2/health/live"), client.head("GET", "/v2/models/none")
        for head in (live, missing, live):
            client.send(head, head.without_body())
        assert [client.read().head.status for _ in range(3)] == [200, 404, 200]
        client.send(live, client.head("GET", "/v2", ("Connection", "close")).without_body())
        assert client.read().head.status == 200
        assert not client.session.reusable
    examples.end()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with what was sent, in the form that the path names."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        if self.path == "/chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"".join(chunk(body[i : i + 3]) for i in range(0, len(body), 3)) + chunk(b""))
            return
        if self.path == "/close":
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body) + (self.path == "/short")))
            self.close_connection = self.path == "/short"
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def python_server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_pythons_server_is_understood(python_server):
    body = bytes(range(256)) * 40
    with Connection(python_server) as client:
        assert client.ask("POST", "/length", body).body == body
        assert client.ask("POST", "/chunks", body[:1000]).body == body[:1000]
        assert client.ask("HEAD", "/").body == b""
        head = client.head("POST", "/length")
        client.send(head, head.with_body(3, expect_continue=True) + b"abc")
        answer = client.read()
        assert (answer.interim, answer.body) == ([100], b"abc")
        assert client.ask("GET", "/").head.status == 501  # which it has no method for
    with Connection(python_server) as client:
        assert client.ask("POST", "/close", body).body == body
        assert not client.session.reusable
    with Connection(python_server) as client, pytest.raises(BadResponse, match="1 bytes before the end"):
        client.ask("POST", "/short", body)


@contextmanager
def echoing():
    """A server that is a socket and our session: it answers with what it was sent, once for each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        seen: list = []

        def one():
            session, body = Http1Server(), b""
            accepted, _ = listener.accept()
            with accepted:
                while True:
                    for kind, value in session.receive(accepted.recv(65536)):
                        if kind == "head":
                            seen.append(value)
                            if value.expect_continue:
                                accepted.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                        elif kind == "data":
                            body += value
                        else:
                            accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                            return

        thread = threading.Thread(target=one, daemon=True)
        thread.start()
        yield listener.getsockname()[1], seen
        thread.join(60)


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
@pytest.mark.parametrize(
    "flags", [(), ("-H", "Expect: 100-continue"), ("-H", "Transfer-Encoding: chunked"), ("--http1.0",)]
)
def test_curl_is_understood(flags, tmp_path):
    sent = tmp_path / "body"
    sent.write_bytes(bytes(range(256)) * 2000)
    with echoing() as (port, seen):
        command = [
            "curl",
            "-sS",
            "--max-time",
            "60",
            "--data-binary",
            f"@{sent}",
            *flags,
            f"http://127.0.0.1:{port}/a?b=c",
        ]
        done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == sent.read_bytes()
    (head,) = seen
    assert (head.method, head.target) == ("POST", "/a?b=c")
    assert head.chunked is ("Transfer-Encoding: chunked" in flags) and head.http10 is ("--http1.0" in flags)
    assert head.expect_continue is ("Expect: 100-continue" in flags)
