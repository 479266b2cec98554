"""Traces of inferences over gRPC: when they are complete.  Layer 4 (front).

Made for sampled requests only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tisfast.telemetry.trace import Trace
    from tisfast.telemetry.tracer import Tracer
    from tisfast.wire.record import InferInput


def sample(tracer: Tracer, request: InferInput, metadata: Mapping[str, str] | None, received_ns: int) -> Trace | None:
    """A trace of a request that is about to be queued, if it is to be traced.  received_ns: of its first byte."""
    fields = metadata or {}
    trace = tracer.sample(request.model.name, fields.get("traceparent", ""), fields.get("tracestate", ""))
    if trace is not None:
        trace.mark("GRPC_WAITREAD_START", received_ns)
        trace.mark("GRPC_WAITREAD_END")
        trace.submitted(request)
    return trace


class TracedAnswers:
    """The answers of one request on their way out: the trace is finished once the last is sent, or cannot be.

    forget: called with this once it is finished.
    """

    def __init__(self, trace: Trace, forget: Callable[[TracedAnswers], None]) -> None:
        self.trace = trace
        self._forget = forget
        self._queued = 0
        self._ended = self._finished = False

    def queued(self) -> None:
        """One more is to be sent."""
        self._queued += 1

    def sending(self) -> None:
        """Its turn has come."""
        self.trace.mark("GRPC_SEND_START")

    def sent(self) -> None:
        """Its last byte is on its way."""
        self.trace.mark("GRPC_SEND_END")
        self._queued -= 1
        self._look()

    def ended(self) -> None:
        """None follows those that are queued."""
        self._ended = True
        self._look()

    def gone(self) -> None:
        """The call is over."""
        self._queued, self._ended = 0, True
        self._look()

    def _look(self) -> None:
        if self._ended and not self._queued and not self._finished:
            self._finished = True
            self._forget(self)
            self.trace.finished()
