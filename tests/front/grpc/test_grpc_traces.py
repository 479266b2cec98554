"""Traces of inferences over gRPC."""

from __future__ import annotations

from tests.front.grpc.call_helpers import request
from tests.front.grpc.helpers import INFER, STREAM_INFER, message
from tisfast.telemetry.trace import Trace, read_context

READ = ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"]
SENT = ["INFER_RESPONSE_COMPLETE", "GRPC_SEND_START", "GRPC_SEND_END"]


class Tracer:
    """Traces everything."""

    def __init__(self):
        self.done = []
        self.made = 0

    def sample(self, model, traceparent="", tracestate=""):
        self.made += 1
        return Trace(self.made, ("TIMESTAMPS",), 0, read_context(traceparent, tracestate), self.done.append)


def traced(server):
    tracer = Tracer()
    server.front.trace_with(tracer)
    return tracer


def marks(trace):
    assert [mark.ns for mark in trace.front] == sorted(mark.ns for mark in trace.front)
    return [mark.name for mark in trace.front]


def test_one_call(run):
    async def scenario(server):
        tracer = traced(server)
        client = await server.connect()
        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        call = client.call(INFER, ("traceparent", parent), body=message(request()))
        await server.dispatched(1)
        server.execute()
        await client.result(call)
        await server.until(lambda: tracer.done)
        [trace] = tracer.done
        assert marks(trace) == READ + SENT
        assert trace.context.span_id == "b7ad6b7169203331" and trace.model == "m"
        server.front.trace_with(None)
        call = client.call(INFER, body=message(request()))
        await server.dispatched(1)
        server.execute()
        await client.result(call)
        assert tracer.made == 1

    run(scenario)


def test_requests_of_a_stream_have_a_trace_each(run):
    async def scenario(server):
        tracer = traced(server)
        client = await server.connect()
        stream = client.call(STREAM_INFER, end=False)
        for number in range(3):
            client.body(stream, message(request()), end=number == 2)
        while len(tracer.done) < 3:
            await server.until(lambda: server.link.dispatched or len(tracer.done) == 3)
            if server.link.dispatched:
                server.execute()
        await client.result(stream)
        assert [marks(trace) for trace in tracer.done] == [READ + SENT] * 3

    run(scenario)


def test_a_client_that_leaves_ends_its_traces_once(run):
    async def scenario(server):
        tracer = traced(server)
        client = await server.connect()
        client.call(INFER, body=message(request()))
        stream = client.call(STREAM_INFER, end=False)
        client.body(stream, message(request()))
        await server.until(lambda: tracer.made == 2)
        client.close()
        await server.gone()
        while server.link.dispatched:
            server.execute()
        assert len(tracer.done) == 2
        assert all(marks(trace)[:2] == READ and "GRPC_SEND_END" not in marks(trace) for trace in tracer.done)

    run(scenario)


def test_a_deadline_ends_a_trace_once(run):
    async def scenario(server):
        tracer = traced(server)
        client = await server.connect()
        result = await client.ask(INFER, request(), ("grpc-timeout", "1m"))
        assert result.status == "4"
        while server.link.dispatched:
            server.execute()
        assert len(tracer.done) == 1

    run(scenario)
