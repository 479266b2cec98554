"""Spans of requests, with OpenTelemetry where it is installed."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.pytriton.served import ONE, A, http, model
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.proxy import telemetry


@pytest.fixture
def tracer():
    pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry.set_telemetry_tracer(provider.get_tracer("test"))
    yield spans
    telemetry._tracers.clear()
    provider.shutdown()


@pytest.fixture
def collector():
    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        server.shutdown()


def test_a_traced_request_has_spans_in_the_trace_of_the_server(triton, tracer, collector):
    def function(requests):
        with requests[0].traced_span("inner"):
            return [{"o": request["a"]} for request in requests]

    settings = ["mode=opentelemetry", f"opentelemetry,url={collector}", "rate=1", "level=TIMESTAMPS"]
    running = triton(model("m", function, [A]), model("batch", batch(lambda a: {"o": a}), [A]), trace_config=settings)
    for name in ("m", "batch"):
        with ModelClient(http(running), name) as client:
            client.infer_sample(ONE)
    running.stop()
    spans = {span.name: span for span in tracer.get_finished_spans()}
    assert sorted(spans) == ["inner", "python_backend_execute", "pytriton-batch-decorator-span"]
    assert all(span.parent is not None for span in spans.values())


def test_a_tracer_is_set_once():
    try:
        telemetry.set_telemetry_tracer("first")
        assert telemetry.get_telemetry_tracer() == "first"
        with pytest.raises(ValueError, match="Telemetry tracer is already set"):
            telemetry.set_telemetry_tracer("second")
    finally:
        telemetry._tracers.clear()
