"""Traces of requests that are made on behalf of another one: steps of ensembles, calls of models."""

from __future__ import annotations

from itertools import count

from tests.operations.helpers import Served
from tests.telemetry.helpers import traced
from tisfast.engine.testing import FakeSink, make_input, submit
from tisfast.telemetry.trace import Trace
from tisfast.telemetry.trace_file import trace_objects
from tisfast.telemetry.trace_otlp import spans_of

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def with_child(traceparent=""):
    """A parent, whose front has finished, and its child."""
    done = []
    parent = traced(lambda _: None, traceparent=traceparent)
    served = Served()
    request_input = make_input(served.runtime.signature, id="r")
    child = parent.child(request_input)
    child._done = done.append
    submit(served.runtime, request_input, FakeSink([]), child)
    served.link.execute(took_ns=3000)
    assert done == [child]
    return parent, child


def test_a_child_is_complete_when_the_engine_is_done():
    _, child = with_child()
    assert child.front == []
    assert [mark.name for mark in child.engine] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert len(child.compute) == 4


def test_a_file_names_the_parent():
    parent, child = with_child()
    header = next(iter(trace_objects(child)))
    assert header == {"id": 2, "model_name": "m", "model_version": 1, "request_id": "r", "parent_id": parent.number}
    names = [entry["timestamps"][0]["name"] for entry in trace_objects(child) if "timestamps" in entry]
    assert "INFER_RESPONSE_COMPLETE" not in names


def test_children_are_numbered_with_all_traces_of_the_server():
    numbers = count(7)
    parent = Trace(next(numbers), ("TIMESTAMPS",), 0, None, lambda _: None, numbers.__next__)
    request_input = make_input(Served().runtime.signature)
    children = [parent.child(request_input), parent.child(request_input).child(request_input)]
    assert [child.number for child in children] == [8, 10]
    assert [child.parent_number for child in children] == [7, 9]


def test_a_childs_span_lies_within_that_of_its_parents_model():
    parent, child = with_child()
    above = {span["name"]: span for span in spans_of(parent, 0)}
    below = {span["name"]: span for span in spans_of(child, 0)}
    assert set(below) == {"compute", "m"}
    assert below["m"]["parentSpanId"] == above["m"]["spanId"]
    assert below["compute"]["parentSpanId"] == below["m"]["spanId"]
    assert {span["traceId"] for span in (*above.values(), *below.values())} == {above["m"]["traceId"]}
    told = {each["key"]: each["value"] for each in below["m"]["attributes"]}
    assert told["triton.trace_parent_id"] == {"intValue": "1"}


def test_a_child_belongs_to_the_callers_trace():
    parent, child = with_child(TRACEPARENT)
    for trace in (parent, child):
        assert {span["traceId"] for span in spans_of(trace, 0)} == {"0af7651916cd43dd8448eb211c80319c"}
