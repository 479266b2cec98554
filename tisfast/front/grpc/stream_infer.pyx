"""ModelStreamInfer.  Layer 4 (front).

Requests of models that answer once are answered in the order in which they came, errors included (row 13.13); answers of
decoupled models as they come.  What is queued for a client that reads slowly keeps its blocks, and its call's flow-control
window is not refilled while limits.GRPC_STREAM_REQUESTS_MAX requests and answers are there.
"""

from collections import deque

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tisfast.engine.core cimport InferRequest
from tisfast.front.grpc.infer cimport InferenceStream
from tisfast.front.grpc.message cimport OutMessage, rendered_message
from tisfast.front.grpc.stream cimport GRPC_INTERNAL, GRPC_OK, GRPC_RESOURCE_EXHAUSTED, GRPC_UNAVAILABLE, grpc_code
from tisfast.wire.grpc.respond cimport STREAMED, GrpcBody
from tisfast.wire.record cimport Answer, InferInput

from tisfast import limits
from tisfast.errors import TisError, Unavailable
from tisfast.front.grpc.traced import TracedAnswers
from tisfast.types import Status

cdef Py_ssize_t REQUESTS_MAX = limits.GRPC_STREAM_REQUESTS_MAX
cdef Py_ssize_t WAITING_MAX = limits.GRPC_STREAM_WAITING_MAX
cdef str SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests."


@cython.freelist(256)
cdef class StreamAnswer:
    """See stream_infer.pxd."""


cdef StreamAnswer error_answer(int status, str error, str id, str name, str version):
    cdef StreamAnswer answer = StreamAnswer.__new__(StreamAnswer)
    answer.status, answer.error, answer.refused = status, error, True
    answer.id, answer.name, answer.version = id, name, version
    return answer


# In place of an answer that cannot be rendered.
cdef int body_of_failure(GrpcBody body, StreamAnswer answer, str error) except -1:
    cdef InferInput input = answer.answer.input if answer.answer is not None else answer.input
    if input is None:
        return body.render_stream_error(error, "", "", "")
    return body.render_stream_error(error, input.id, input.model.name, input.model.version)


cdef class StreamRequest(Reply):
    """See stream_infer.pxd."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        cdef StreamAnswer made = None
        if answer is not None or request.input.outputs.empty_final:
            made = StreamAnswer.__new__(StreamAnswer)
            made.answer, made.input, made.final = answer, request.input, final
        return self.deliver(made, final)

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        cdef StreamAnswer made = StreamAnswer.__new__(StreamAnswer)
        made.status, made.error, made.input, made.final = status, message, request.input, final
        made.refused = self.request is None
        return self.deliver(made, final)

    cdef int deliver(self, StreamAnswer answer, bint final) except -1:
        cdef StreamInferCall call = self.call
        if final:
            self.request = None
        if call is None or call.finished:
            return 0  # the client has gone; dropping the answer gives its block back
        if answer is not None and self.traced is not None:
            answer.traced = self.traced
            self.traced.queued()
        if final:
            self.call = None
            call.requests.discard(self)
            if self.traced is not None:
                self.traced.ended()
        if self.decoupled:
            if answer is not None:
                call.emit(answer)
        else:
            self.answer = answer
            call.advance()
        return call.settle() if final else 0


cdef class StreamInferCall(InferenceStream):
    """One ModelStreamInfer call."""

    def __cinit__(self):
        self.requests = set()
        self.order = deque()

    # ---- requests

    cdef int on_piece(self, const uint8_t *data, uint64_t n) except -1:
        if self.skipping:
            return 0
        try:
            InferenceStream.on_piece(self, data, n)
        except TisError as error:
            self.skipping = True
            self.refuse(error)
        return 0

    cdef int on_message(self) except -1:
        cdef StreamRequest made
        cdef InferRequest request
        cdef InferInput input
        if self.skipping:
            self.skipping = False
            return 0
        try:
            if self.shared.draining:
                raise Unavailable(SHUTTING_DOWN)
            input = self.read_request()
        except TisError as error:
            return self.refuse(error)
        self.peeked_id = ""
        made = StreamRequest.__new__(StreamRequest)
        made.call = self
        made.runtime = self.runtime
        self.runtime = None  # a stream between two requests keeps nothing of a model that is replaced or unloaded
        made.decoupled = input.model.decoupled
        self.requests.add(made)
        if not made.decoupled:
            self.order.append(made)
        trace = None
        if self.shared.tracer is not None:
            self.trace_request(made, input)
            trace = made.traced.trace if made.traced is not None else None
        self.shared.cores.seen(self.session.fd, made.runtime, self.total)
        request = made.runtime.submit(input, made, trace)
        if made.call is not None:
            made.request = request
        return self.throttle()

    cdef int trace_request(self, StreamRequest made, InferInput input) except -1:
        trace = self.sample(input)
        if trace is not None:
            if self.traces is None:
                self.traces = set()
            made.traced = TracedAnswers(trace, self.traces.discard)
            self.traces.add(made.traced)
        return 0

    cdef int closed(self, uint32_t error_code) except -1:
        InferenceStream.closed(self, error_code)
        if self.traces is not None:
            for traced in list(self.traces):
                traced.gone()
        return 0

    cdef int refuse(self, object error) except -1:
        """A message that became no request is answered in its turn, too."""
        cdef StreamRequest made = StreamRequest.__new__(StreamRequest)
        self.block = None
        self._drop_collected()
        # The codec knows the id; what fails before it has just been peeked at.
        name = error.facts["id"] if "id" in error.facts else self.peeked_id or ""
        self.peeked_id = ""
        made.answer = error_answer(int(error.status), error.message, name, "", "")
        self.order.append(made)
        self.advance()
        return self.throttle()

    cdef Py_ssize_t waiting(self) noexcept:
        return len(self.requests) + len(self.order) + (len(self.queue) if self.queue is not None else 0)

    cdef int throttle(self) except -1:
        """What is in flight when the window closes still comes: it has a bound of its own."""
        cdef Py_ssize_t waiting = self.waiting()
        if waiting >= REQUESTS_MAX:
            self.throttled = True
        return self._too_many() if waiting > WAITING_MAX else 0

    cdef int unthrottle(self) except -1:
        if self.throttled and self.waiting() < REQUESTS_MAX // 2:
            return self.give_window()
        return 0

    def _too_many(self) -> int:
        return self.finish(
            GRPC_RESOURCE_EXHAUSTED,
            f"more than {WAITING_MAX} requests and answers of this stream wait; read the answers while you send")

    # ---- answers

    cdef int advance(self) except -1:
        """Send what waited for its turn."""
        while self.order and not self.finished and (<StreamRequest>self.order[0]).answer is not None:
            self.emit((<StreamRequest>self.order.popleft()).answer)
        return 0

    cdef int emit(self, StreamAnswer answer) except -1:
        if answer.error is not None and self.wants_status and not answer.refused:
            return self.finish(grpc_code(answer.status), answer.error)
        if self.queue is not None and len(self.queue) >= WAITING_MAX:
            return self._too_many()
        return self.send(answer)

    cdef OutMessage render(self, object queued):
        cdef StreamAnswer answer = queued
        cdef OutMessage message
        if answer.traced is None:
            return self.rendered(answer)
        answer.traced.sending()
        message = self.rendered(answer)
        message.traced = answer.traced
        return message

    cdef OutMessage rendered(self, StreamAnswer answer):
        cdef GrpcBody body = self.shared.body
        self.unthrottle()
        try:
            if answer.answer is not None:
                body.render(answer.answer, STREAMED, answer.final)
                return rendered_message(body, answer.answer, self.coding)
            if answer.error is None:
                body.render_empty_final(answer.input)
            elif answer.input is not None:
                body.render_stream_failure(answer.error, answer.input, answer.final)
            else:
                body.render_stream_error(answer.error, answer.id, answer.name, answer.version)
        except TisError as error:
            body_of_failure(body, answer, error.message)
        except Exception as error:  # our bug: answered and reported; the stream goes on
            self.shared.loop.call_exception_handler({"message": "an answer cannot be sent", "exception": error})
            body_of_failure(body, answer, f"unexpected {type(error).__name__} in the server; see its log")
        return rendered_message(body, None, self.coding)

    # ---- the end

    cdef int on_half_close(self) except -1:
        return self.settle()

    cdef int drain(self) except -1:
        return self.settle()

    cdef int settle(self) except -1:
        """End the call when its last answer is out and the client, or the server, wants no more."""
        self.unthrottle()  # a request may end without an answer
        if self.finished or self.requests:
            return 0
        if self.client_done:
            return self.finish(GRPC_OK, None)
        if self.shared.draining:
            return self.finish(GRPC_UNAVAILABLE, SHUTTING_DOWN)
        return 0

    cdef int on_gone(self) except -1:
        cdef StreamRequest made
        self.block = None
        requests, self.requests = self.requests, set()
        self.order.clear()
        for made in requests:
            made.call = None
            if made.request is not None:
                made.runtime.cancel(made.request)
        return 0
