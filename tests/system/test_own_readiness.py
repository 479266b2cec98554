"""A model's own `is_ready`, as clients of both protocols see it."""

from __future__ import annotations

import os
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import tritonclient.grpc

from tests.system.helpers import ADD_ONE, CONFIG, until

READY = """
    def is_ready(self):
        path = __file__ + ".says"
        import os
        if not os.path.exists(path):
            return True
        with open(path) as file:
            return eval(file.read())
"""
LATER = READY.replace("def is_ready", "async def is_ready").replace(
    "        path", "        import asyncio; await asyncio.sleep(0)\n        path"
)


@pytest.fixture
def checked(write_model, serve):
    """A server on a model whose is_ready evaluates a file; `server.says(text)` writes it."""

    def start(more: str = READY, config: str = CONFIG, fault: str = ""):
        folder = write_model("m", ADD_ONE + more, config)
        server = serve(fault=fault).ready()
        server.grpc_port = next(r["grpc_port"] for r in server.log if r.get("event") == "ready")
        server.set = (folder / "1" / "model.py.says").write_text
        return server

    return start


class Gate:
    """`wait`: an expression that makes `seen` and is True when `touch` has been called."""

    def __init__(self, folder):
        self.seen, gate = folder / "seen", folder / "gate"
        self.touch = gate.touch
        looks = f"iter(lambda: __import__('os').path.exists({str(gate)!r}) or __import__('time').sleep(0.005), True)"
        self.wait = f"open({str(self.seen)!r}, 'w').close() or all(x is None for x in {looks})"


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path)


def ready(server) -> tuple[int, str, bool]:
    """HTTP status and error text, and what gRPC says."""
    status, body = server.ask("GET", "/v2/models/m/ready")
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        return status, body.get("error", ""), client.is_model_ready("m", "1")


@pytest.mark.parametrize("more", [READY, LATER], ids=["plain", "async"])
def test_what_is_ready_says_is_what_clients_hear(checked, more):
    server = checked(more)
    assert ready(server) == (200, "", True)
    for code, reason in (
        ("False", "is_ready() returned False"),
        ("1", "is_ready() returned a int, not a bool"),
        ("1 / 0", "is_ready() raised ZeroDivisionError: division by zero"),
        ("exit(3)", "is_ready() raised SystemExit: 3"),
    ):
        server.set(code)
        assert ready(server) == (400, f"Model version not ready: 'm' version 1: {reason}", False)
        assert server.infer("m")[0] == 200
    server.set("True")
    assert ready(server) == (200, "", True)
    assert server.ask("GET", "/v2/health/ready")[0] == 200


def test_a_slow_check_delays_nobody_else(checked, gate):
    server = checked(fault="from tisfast import limits; limits.READY_CHECK_SECONDS_MAX = 600")
    server.set(gate.wait)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(server.ask, "GET", "/v2/models/m/ready") for _ in range(3)]
        until(gate.seen.exists, "it checks")
        for _ in range(20):
            assert server.infer("m")[0] == 200
        assert not any(each.done() for each in asked)
        gate.touch()
        assert [each.result() for each in asked] == [(200, {})] * 3


def test_a_slow_check_ends(checked, gate):
    server = checked()
    server.set(gate.wait)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: server.ask("GET", "/v2/models/m/ready"), range(3)))
    text = "Model version not ready: 'm' version 1: is_ready() of instance m_0 did not answer within 5 s"
    assert found == [(400, {"error": text})] * 3
    assert ready(server) == (400, text, False)  # at once: the same check still runs
    server.set("True")
    gate.touch()
    until(lambda: ready(server)[0] == 200, "the check that took too long has ended")


def test_every_instance_is_asked(checked):
    more = READY + "    def initialize(self, args):\n        self.args = args\n"
    server = checked(more, CONFIG + "instance_group [ { count: 2 kind: KIND_CPU } ]\n")
    server.set("self.args['model_instance_name'].endswith('_0')")
    assert ready(server)[:2] == (400, "Model version not ready: 'm' version 1: is_ready() returned False")


def test_a_worker_that_dies_of_its_check_is_not_ready(checked):
    server = checked()
    pid = server.worker("m_0")
    server.set("__import__('os').kill(__import__('os').getpid(), 9)")
    status, text, _ = ready(server)
    assert status == 400 and ("has ended" in text or "being restarted" in text)
    server.set("True")
    until(lambda: ready(server)[0] == 200, "restarted")
    assert server.worker("m_0") != pid


def test_a_client_that_leaves_meanwhile_harms_nobody(checked, gate):
    server = checked()
    server.set(gate.wait)
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /v2/models/m/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        until(gate.seen.exists, "it checks")
    server.set("True")
    gate.touch()
    until(lambda: ready(server)[0] == 200, "asked again")
    assert server.end(signal.SIGTERM) == 0 and not os.path.exists(f"/proc/{server.worker('m_0')}")


def test_answers_to_pipelined_requests_keep_their_order(checked):
    server = checked()
    server.set("__import__('time').sleep(0.2) or False")
    paths = ("/v2/models/m/ready", "/v2/health/live", "/v2/models/m/ready", "/v2/models/m")
    with socket.create_connection(("127.0.0.1", server.port), 60) as connection:
        connection.sendall(b"".join(b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path.encode() for path in paths))
        found = b""
        while b'"platform"' not in found:
            found += connection.recv(65536)
    assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"400", b"200", b"400", b"200"]
