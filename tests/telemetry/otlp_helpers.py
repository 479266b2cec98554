"""An OpenTelemetry receiver: a real HTTP server that decodes what it gets with OpenTelemetry's own messages."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """Collects export requests; answers with the next of `statuses`, then 200."""

    def __init__(self, *statuses):
        self.requests, self.paths, self.statuses = [], [], list(statuses)
        self._news = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = receiver.take(self.path, self.headers["Content-Type"], body)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def take(self, path, content_type, body):
        assert content_type == "application/json"
        with self._news:
            self.paths.append(path)
            status = self.statuses.pop(0) if self.statuses else 200
            if status == 200:
                self.requests.append(decoded(body))
            self._news.notify_all()
        return status

    def spans(self, count, seconds=60):
        """Wait for so many spans; (resource attributes, span) of each."""
        with self._news:
            assert self._news.wait_for(lambda: len(self._all()) >= count, seconds), f"{len(self._all())} of {count}"
            return self._all()

    def _all(self):
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def decoded(body):
    """OTLP's JSON writes ids in hexadecimal, where protobuf's JSON form has base64; all else is the same."""
    request = json.loads(body)
    for resource in request["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return ParseDict(request, ExportTraceServiceRequest())


def attributes(owner):
    return {each.key: each.value.string_value or each.value.int_value for each in owner.attributes}
