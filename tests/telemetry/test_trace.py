"""What a trace notes, and the context it continues."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operations.helpers import Served
from tests.telemetry.helpers import traced
from tisfast.engine.testing import FakeSink, make_input, submit
from tisfast.telemetry.trace import Context, Trace, read_context

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_marks_of_a_request():
    done = []
    trace = traced(done.append)
    assert done == [trace]
    assert [mark.name for mark in trace.front] == [
        "HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END",
    ]  # fmt: skip
    assert [mark.name for mark in trace.engine] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    compute = {mark.name: mark.ns for mark in trace.compute}
    assert list(compute) == ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    assert compute["COMPUTE_END"] - compute["COMPUTE_START"] == 5000
    assert (trace.model, trace.version, trace.request_id) == ("m", "1", "r")


def test_a_trace_is_complete_when_front_and_engine_are_done():
    done, served = [], Served()
    trace = Trace(1, ("TIMESTAMPS",), 0, None, done.append)
    trace.submitted(make_input(served.runtime.signature))
    submit(served.runtime, make_input(served.runtime.signature), FakeSink([]), trace)
    trace.finished()  # the client has gone
    assert not done
    served.link.execute()
    assert done == [trace]
    assert trace.compute


def test_context():
    assert read_context(f"00-{TRACE_ID}-{SPAN_ID}-01", "a=b") == Context(TRACE_ID, SPAN_ID, "a=b")
    assert read_context(f"01-{TRACE_ID}-{SPAN_ID}-00-later") == Context(TRACE_ID, SPAN_ID, "")


@pytest.mark.parametrize(
    "header",
    ["", "bogus", f"00-{TRACE_ID}-{SPAN_ID}", f"ff-{TRACE_ID}-{SPAN_ID}-01", f"00-{'0' * 32}-{SPAN_ID}-01",
     f"00-{TRACE_ID}-{'0' * 16}-01", f"00-{TRACE_ID.upper()}-{SPAN_ID}-01", f"00-{TRACE_ID}-{SPAN_ID}-01\n"[:-2]],
)  # fmt: skip
def test_a_broken_context_is_none(header):
    assert read_context(header) is None


@given(st.text(), st.text())
def test_no_header_raises(traceparent, tracestate):
    read_context(traceparent, tracestate)
