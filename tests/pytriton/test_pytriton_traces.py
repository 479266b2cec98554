"""Spans of requests, with OpenTelemetry where it is installed."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from tests.pytriton.bound import config
from tests.pytriton.process_callables import where
from tests.pytriton.served import ONE, A, http, model
from tisfast.local_server import guest_runtime
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.proxy import telemetry
from tisfast.pytriton.proxy.backend import CallableBackend


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
    came = threading.Event()

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            if b"python_backend_execute" in self.rfile.read(int(self.headers["content-length"])):
                came.set()
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}/v1/traces", came=came)
        server.shutdown()


def test_a_traced_request_has_spans_in_the_trace_of_the_server(triton, tracer, collector):
    def function(requests):
        with requests[0].traced_span("inner"):
            return [{"o": request["a"]} for request in requests]

    settings = ["mode=opentelemetry", f"opentelemetry,url={collector.url}", "rate=1", "level=TIMESTAMPS"]
    running = triton(model("m", function, [A]), model("batch", batch(lambda a: {"o": a}), [A]), trace_config=settings)
    for name in ("m", "batch"):
        with ModelClient(http(running), name) as client:
            client.infer_sample(ONE)
    running.stop()
    spans = {span.name: span for span in tracer.get_finished_spans()}
    assert sorted(spans) == ["inner", "python_backend_execute", "pytriton-batch-decorator-span"]
    assert all(span.parent is not None for span in spans.values())


def test_processes_trace_by_the_settings_of_their_program(triton, collector):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    settings = ["mode=opentelemetry", f"opentelemetry,url={collector.url}", "rate=1", "level=TIMESTAMPS"]
    try:
        running = triton(model("m", where, [A], processes=1), trace_config=settings)
        with ModelClient(http(running), "m") as client:
            client.infer_sample(ONE)
        assert collector.came.wait(60)
    finally:
        telemetry._tracers.clear()


class Unreadable:
    """A traced request whose inputs cannot be read."""

    def inputs(self):
        raise ValueError("not to be read")

    def trace(self):
        return self

    def get_context(self):
        return json.dumps({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})


def test_a_request_that_cannot_be_read_leaves_no_span_open(tracer):
    begun = []
    start = telemetry.get_telemetry_tracer().start_span
    telemetry.get_telemetry_tracer().start_span = lambda *args, **named: (
        begun.append(start(*args, **named)) or begun[-1]
    )
    guest_runtime()  # the worker's runtime is importable from here on
    backend = CallableBackend(lambda requests: [], config(), False, lambda error: None)
    with pytest.raises(ValueError, match="not to be read"):
        backend.execute([Unreadable()])
    assert len(tracer.get_finished_spans()) == len(begun)


def test_a_tracer_is_set_once():
    try:
        telemetry.set_telemetry_tracer("first")
        assert telemetry.get_telemetry_tracer() == "first"
        with pytest.raises(ValueError, match="Telemetry tracer is already set"):
            telemetry.set_telemetry_tracer("second")
    finally:
        telemetry._tracers.clear()
