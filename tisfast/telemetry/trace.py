"""One traced request, from its first byte to its last.  Layer 4 (telemetry).

A front makes none of these unless a request is sampled; then it notes times, which cost a clock reading each, and what
follows is done by the thread that writes (trace_outbox).  All times are CLOCK_MONOTONIC ns.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from tisfast import limits
from tisfast.native.memory import now_ns
from tisfast.telemetry.trace_tensors import TracedTensor, input_tensors, output_tensors

if TYPE_CHECKING:
    from tisfast.engine.core import InferRequest
    from tisfast.wire.record import Answer, InferInput

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
_COMPUTE: Final = (
    ("COMPUTE_START", "taken_ns"),
    ("COMPUTE_INPUT_END", "infer_start_ns"),
    ("COMPUTE_OUTPUT_START", "infer_end_ns"),
    ("COMPUTE_END", "done_ns"),
)


class Context(NamedTuple):
    """The caller's span, as W3C's Trace Context headers name it: lower-case hexadecimal digits."""

    trace_id: str
    span_id: str
    state: str


def read_context(traceparent: str, tracestate: str = "") -> Context | None:
    """Read the two headers; None when they are not valid, which starts a trace of its own (W3C 3.2.2)."""
    match = _TRACEPARENT.fullmatch(traceparent.strip()[: limits.TRACE_HEADER_BYTES_MAX])
    if match is None or match.group(1) == "ff" or not int(match.group(2), 16) or not int(match.group(3), 16):
        return None
    return Context(match.group(2), match.group(3), tracestate.strip()[: limits.TRACE_HEADER_BYTES_MAX])


class Mark(NamedTuple):
    """Something happened."""

    name: str
    ns: int


class Trace:
    """One traced request.

    number: of the trace in this server; done: gets the trace when it is complete; numbers: gives those of traces that
    this one leads to; nbytes: what the tensors hold.  The front calls `mark` as it likes,
    `submitted` before it queues the request, and `finished` once the last response is sent or cannot be; the engine
    calls `answered` for each response, and `child` for each request that this one makes of other models.
    """

    def __init__(
        self,
        number: int,
        levels: tuple[str, ...],
        log_frequency: int,
        context: Context | None,
        done: Callable[[Trace], None],
        numbers: Callable[[], int] | None = None,
    ) -> None:
        self.number = number
        self.parent_number = 0
        self.own: Context | None = None
        """The context that children continue: the span of this request's model.  None until there is one."""
        self.propagates = False
        """Whether models may ask for `context_text`: in mode opentelemetry."""
        self.timestamps = "TIMESTAMPS" in levels
        self.log_frequency = log_frequency
        self.context = context
        self.model = self.version = self.request_id = ""
        self.front: list[Mark] = []
        self.engine: list[Mark] = []
        self.compute: list[Mark] = []
        self.tensors: list[TracedTensor] = []
        self.nbytes = 0
        self._wants_tensors = "TENSORS" in levels
        self._levels = levels
        self._done = done
        self._numbers = numbers or itertools.count(number + 1).__next__
        self._left = 2  # front and engine

    def mark(self, name: str, ns: int = 0) -> None:
        """Something happened in the front, now or at `ns`: HTTP_RECV_START, GRPC_SEND_END and their like."""
        if len(self.front) < limits.TRACE_MARKS_MAX:
            self.front.append(Mark(name, ns or now_ns()))

    def child(self, request: InferInput) -> Trace:
        """The trace of a request that the engine queues on behalf of this one."""
        made = Trace(self._numbers(), self._levels, self.log_frequency, self._span(), self._done, self._numbers)
        made.parent_number = self.number
        made.propagates = self.propagates
        made._left = 1
        made.submitted(request)
        return made

    def context_text(self) -> str:
        """The trace context for services that the model asks: JSON of the headers that continue this trace."""
        own = self._span()
        headers = {"traceparent": f"00-{own.trace_id}-{own.span_id}-01"}
        return json.dumps({**headers, **({"tracestate": own.state} if own.state else {})}, separators=(",", ":"))

    def _span(self) -> Context:
        """That of this request's model."""
        if self.own is None:
            outer = self.context or Context(secrets.token_hex(16), "", "")
            self.own = outer._replace(span_id=secrets.token_hex(8))
        return self.own

    def submitted(self, request: InferInput) -> None:
        """The request is about to be queued."""
        self.model, self.version, self.request_id = request.model.name, request.model.version, request.id
        self.engine.append(Mark("REQUEST_START", now_ns()))
        if self.propagates:
            request.mark_traced()
        if self._wants_tensors and not request.is_late:
            self._note(input_tensors(request, limits.TRACE_BYTES_MAX))

    def copied(self, request: InferInput) -> None:
        """Inputs of it that threads had to copy are there."""
        if self._wants_tensors:
            self._note(input_tensors(request, limits.TRACE_BYTES_MAX))

    def answered(self, request: InferRequest, answer: Answer | None, final: bool) -> None:
        """A response is there; None: an error, or the end of a decoupled model's stream.  final: none follows."""
        if not self.parent_number:  # Triton leaves it out for others
            self.mark("INFER_RESPONSE_COMPLETE")
        if self._wants_tensors and answer is not None and len(self.tensors) < limits.TRACE_MARKS_MAX:
            self._note(output_tensors(answer, limits.TRACE_BYTES_MAX - self.nbytes))
        if final:
            self._ended(request)

    def finished(self) -> None:
        """The front has nothing more to send, or its client has gone.  Called once."""
        self._leave()

    def _note(self, tensors: list[TracedTensor]) -> None:
        self.tensors += tensors
        self.nbytes += sum(len(tensor.data) for tensor in tensors)

    def _ended(self, request: InferRequest) -> None:
        self.engine.append(Mark("QUEUE_START", request.queued_ns))
        self.engine.append(Mark("REQUEST_END", now_ns()))
        times = request.times
        if times["taken_ns"]:  # else it never reached an instance, or is an ensemble's
            self.compute = [Mark(name, times[key]) for name, key in _COMPUTE]
        self._leave()

    def _leave(self) -> None:
        self._left -= 1
        if not self._left:
            self._done(self)
