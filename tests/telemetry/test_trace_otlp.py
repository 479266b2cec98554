"""Spans at a real OTLP/HTTP receiver."""

from __future__ import annotations

import time

import pytest

from tests.telemetry.helpers import traced
from tests.telemetry.otlp_helpers import Receiver, attributes
from tisfast.config.tracing import OpenTelemetrySettings
from tisfast.telemetry.trace_otlp import OtlpExporter

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


def export(receiver, *traces, resource=()):
    exporter = OtlpExporter(OpenTelemetrySettings(receiver.url, resource))
    exporter.write(traces)
    exporter.close()
    return receiver._all()


def test_three_spans_one_within_the_other(receiver):
    compute, model, root = export(receiver, traced(lambda _: None, number=9))
    assert [span.name for span in (root, model, compute)] == ["InferRequest", "m", "compute"]
    assert root.parent_span_id == b""
    assert (model.parent_span_id, compute.parent_span_id) == (root.span_id, model.span_id)
    assert root.trace_id == model.trace_id == compute.trace_id
    assert {span.kind for span in (root, model, compute)} == {2}
    assert [event.name for event in compute.events] == [
        "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END",
    ]  # fmt: skip
    assert compute.end_time_unix_nano - compute.start_time_unix_nano == 5000
    assert attributes(model) == {
        "triton.model_name": "m",
        "triton.model_version": 1,
        "triton.trace_id": 9,
        "triton.trace_parent_id": 0,
        "triton.request_id": "r",
    }
    assert abs(root.end_time_unix_nano - time.time_ns()) < 60e9


def test_the_callers_trace_goes_on(receiver):
    trace = traced(lambda _: None, traceparent=f"00-{TRACE_ID}-{SPAN_ID}-01", tracestate="a=b")
    spans = export(receiver, trace)
    assert {span.trace_id.hex() for span in spans} == {TRACE_ID}
    assert {span.trace_state for span in spans} == {"a=b"}
    assert spans[-1].parent_span_id.hex() == SPAN_ID


def test_a_request_that_failed_before_it_ran_has_no_compute_span(receiver):
    trace = traced(lambda _: None)
    trace.compute = []
    assert [span.name for span in export(receiver, trace)] == ["m", "InferRequest"]


def test_the_resource(receiver):
    export(receiver, traced(lambda _: None), resource=(("service.name", "mine"), ("k", "v")))
    found = attributes(receiver.requests[0].resource_spans[0].resource)
    assert found["service.name"] == "mine"
    assert found["k"] == "v"
    assert found["telemetry.sdk.name"] == "tisfast"
    assert receiver.paths == ["/v1/traces"]


def test_a_receiver_that_refuses_is_told_of_once(caplog):
    receiver = Receiver(400, 400, 200)
    exporter = OtlpExporter(OpenTelemetrySettings(receiver.url))
    for _ in range(3):
        exporter.write([traced(lambda _: None)])
    exporter.close()
    receiver.close()
    assert len(receiver.requests) == 1
    (record,) = caplog.records
    assert f"1 traces are lost: OpenTelemetry receiver {receiver.url}: 400" in record.getMessage()


def test_no_receiver_and_the_end(caplog):
    exporter = OtlpExporter(OpenTelemetrySettings("http://127.0.0.1:1/v1/traces"))
    exporter.stop()  # no waiting for another attempt
    exporter.write([traced(lambda _: None)])
    assert "Connection refused" in caplog.text


def test_a_busy_receiver_is_asked_again():
    receiver = Receiver(503)
    assert len(export(receiver, traced(lambda _: None))) == 3
    receiver.close()
