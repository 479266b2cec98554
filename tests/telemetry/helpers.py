"""Traces of requests that never saw a socket."""

from __future__ import annotations

from tests.operations.helpers import Served
from tisfast.engine.testing import FakeSink, make_input, submit
from tisfast.telemetry.trace import Trace, read_context


def traced(done, number=1, *, status=0, levels=("TIMESTAMPS",), log_frequency=0, traceparent="", tracestate="", id="r"):
    """A request from the front's first mark to its last."""
    served = Served()
    trace = Trace(number, levels, log_frequency, read_context(traceparent, tracestate), done)
    trace.mark("HTTP_RECV_START", 10)
    trace.mark("HTTP_RECV_END", 20)
    request_input = make_input(served.runtime.signature, id=id)
    trace.submitted(request_input)
    submit(served.runtime, request_input, FakeSink([]), trace)
    served.link.execute(took_ns=5000, status=status)
    trace.mark("HTTP_SEND_START")
    trace.mark("HTTP_SEND_END")
    trace.finished()
    return trace
