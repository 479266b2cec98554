"""The least server of a framework's call: one process, one thread, no model repository, no isolation.

What it misses, no server reaches on this machine: it reads a request, calls, and writes the answer.  All other requests
go to a real server, so that load generators find the model that they ask for.

    python -m perf.macro.framework_floor FRAMEWORK FOLDER PORT     # of the model's version, and of the real server
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from perf.figures import RunFailed
from perf.macro.framework_models import FRAMEWORKS, Call
from perf.oracle.launch import ROOT
from perf.oracle.server import Server

BODY_BYTES_MAX: Final = 32 << 20
SECONDS_MAX: Final = 60
_LENGTH: Final = re.compile(rb"(?i)\ncontent-length: *(\d+)")
_JSON_LENGTH: Final = re.compile(rb"(?i)\ninference-header-content-length: *(\d+)")


@contextlib.contextmanager
def least(framework: str, version: Path, server: Server) -> Iterator[str]:
    """Its address, HOST:PORT; version: the folder of the model's file; server: the real one that knows the model."""
    command = [sys.executable, "-m", __name__, framework, str(version), str(server.http)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RunFailed(f"the least server of {framework} did not start")
            yield f"localhost:{port}"
        finally:
            process.kill()


class Upstream:
    """The real server, which answers what is no inference."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.last: tuple[str, bytes, int] | None = None  # of an inference: target, JSON, and bytes behind that

    def ask(self, verb: str, target: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        """Status and body of its answer."""
        with contextlib.closing(http.client.HTTPConnection("localhost", self._port, timeout=SECONDS_MAX)) as real:
            real.request(verb, target, body or None, headers)
            answer = real.getresponse()
            return answer.status, answer.read()


class Connection:
    """One client's: bytes that have come, and answers."""

    def __init__(self, peer: socket.socket, call: Call, upstream: Upstream) -> None:
        """call: of an array."""
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer, self._call, self._upstream = peer, call, upstream
        self._room = memoryview(bytearray(BODY_BYTES_MAX))
        self._filled = self._head_bytes = self._body_bytes = 0

    def read(self) -> bool:
        """What has come; whether the client is still there."""
        count = self._peer.recv_into(self._room[self._filled :])
        self._filled += count
        if not self._head_bytes:
            head = bytes(self._room[: min(self._filled, 4096)])
            self._head_bytes = head.find(b"\r\n\r\n") + 4 if b"\r\n\r\n" in head else 0
            length = _LENGTH.search(head)
            self._body_bytes = int(length[1]) if length else 0
        if self._head_bytes and self._filled == self._head_bytes + self._body_bytes:
            self._answer()
            self._filled = self._head_bytes = 0
        return count > 0

    def _answer(self) -> None:
        head = bytes(self._room[: self._head_bytes])
        body = self._room[self._head_bytes : self._filled]
        json_bytes = _JSON_LENGTH.search(head)
        if not json_bytes:
            self._pass_on(head, bytes(body))
            return
        text = bytes(body[: int(json_bytes[1])])
        self._upstream.last = head.split(b" ", 2)[1].decode(), text, len(body) - len(text)
        asked = json.loads(text)
        array = np.frombuffer(body[len(text) :], np.float32).reshape(asked["inputs"][0]["shape"])
        found = np.ascontiguousarray(self._call(array))
        output = {"name": "OUTPUT0", "datatype": "FP32", "shape": found.shape}
        output["parameters"] = {"binary_data_size": found.nbytes}
        answer = json.dumps({"model_name": "model", "model_version": "1", "outputs": [output]}).encode()
        self._peer.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(answer), len(answer) + found.nbytes, answer)
        )
        self._peer.sendall(found.data.cast("B"))

    def _pass_on(self, head: bytes, body: bytes) -> None:
        verb, target, _ = head.decode().split(" ", 2)
        last = self._upstream.last
        if target.endswith("/stats") and last:  # which must have moved, or perf_analyzer gives up
            lengths = {"Inference-Header-Content-Length": str(len(last[1]))}
            self._upstream.ask("POST", last[0], last[1] + bytes(last[2]), **lengths)
        status, data = self._upstream.ask(verb, target, body)
        self._peer.sendall(
            b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(data), data)
        )


def main() -> None:
    """Serve until killed."""
    name, version, upstream = sys.argv[1:]
    call, real = FRAMEWORKS[name].call(Path(version)), Upstream(int(upstream))
    listener = socket.create_server(("localhost", 0), backlog=64)
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    print(listener.getsockname()[1], flush=True)
    while True:
        for key, _ in waiting.select():
            if key.data is None:
                peer, _ = listener.accept()
                waiting.register(peer, selectors.EVENT_READ, Connection(peer, call, real))
                continue
            try:
                is_open = key.data.read()
            except ConnectionError:  # load generators leave in the middle of a request
                is_open = False
            if not is_open:
                waiting.unregister(key.fileobj)


if __name__ == "__main__":
    main()
