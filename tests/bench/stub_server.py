"""A server of KServe's protocol over HTTP whose answers take a known time: it waits, drops, refuses as it is told."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

METADATA = {
    "name": "stub",
    "versions": ["1"],
    "platform": "stub",
    "inputs": [{"name": "A", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "B", "datatype": "FP32", "shape": [-1, 4]}],
}
ANSWER = json.dumps(
    {
        "model_name": "stub",
        "model_version": "1",
        "outputs": [{"name": "B", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}],
    }
).encode()
CONFIG = {"name": "stub", "max_batch_size": 8}
Answering = Callable[[int], str]
"""Of the number of the inference, from 1 on: waits as it likes, and gives "" for a good answer, "drop", or an error."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        self.open: list[socket.socket] = []
        self.tls: ssl.SSLContext | None = None
        super().__init__(*arguments)

    def get_request(self) -> Any:
        request, address = super().get_request()
        if self.tls is not None:  # the handshake is the handler's, so that it holds up nobody else
            request = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        return request, address

    def process_request(self, request: Any, address: Any) -> None:
        self.open.append(request)
        super().process_request(request, address)

    def handle_error(self, *_: Any) -> None:
        """A client that has gone is no news."""


class StubServer:
    """Serves the model 'stub' on `port`; `count` inferences have come.

    parts_ns: of each inference that was answered well, as its statistics say; empty: it has none.  config: None: it has
    no such call.  tls: it speaks that.
    """

    def __init__(
        self,
        answering: Answering = lambda _: "",
        parts_ns: Mapping[str, int] | None = None,
        config: dict[str, Any] | None = CONFIG,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.count = 0
        self.good = 0
        self.metadata: dict[str, Any] = METADATA
        self.metrics = ""
        self.looks: Callable[[], None] = lambda: None  # before each answer that holds statistics
        self._parts = dict(parts_ns or {})
        self.bodies: list[bytes] = []
        self._answering, self._config = answering, config
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.tls = tls
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def start(self) -> None:
        """Serve."""
        self._thread.start()

    def __enter__(self) -> StubServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """It is there no more."""
        self._server.shutdown()
        self._server.server_close()
        for each in self._server.open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _infer(self, body: bytes) -> str:
        with self._lock:
            self.count += 1
            number = self.count
            self.bodies = [*self.bodies[-9:], body]
        return self._answering(number)

    def _statistics(self) -> dict[str, Any]:
        self.looks()
        with self._lock:
            good = self.good
        parts = {name: {"count": good, "ns": good * ns} for name, ns in self._parts.items()}
        sizes = [{"batch_size": 1, "compute_infer": {"count": good, "ns": 0}}]
        counts = {"inference_count": good, "execution_count": good}
        return {
            "model_stats": [{"name": "stub", "version": "1", **counts, "inference_stats": parts, "batch_stats": sizes}]
        }

    def _handler(self) -> Any:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                extensions = ["statistics"] if stub._parts else []
                pages = {
                    "/v2": {"name": "stub", "version": "1", "extensions": extensions},
                    "/v2/models/stub": stub.metadata,
                }
                if stub._config is not None:
                    pages["/v2/models/stub/config"] = stub._config
                if self.path == "/metrics":
                    self._send(200, stub.metrics.encode())
                    return
                found = pages.get(self.path)
                if self.path == "/v2/models/stub/stats" and stub._parts:
                    found = stub._statistics()
                self._send(200 if found else 404, json.dumps(found or {"error": f"no {self.path}"}).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = stub._infer(body)
                if fault == "drop":
                    self.close_connection = True
                elif fault:
                    self._send(500, json.dumps({"error": fault}).encode())
                else:
                    with stub._lock:
                        stub.good += 1
                    self._send(200, ANSWER)

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

        return Handler
