"""ModelStreamInfer.  Layer 4 (front).

Requests of models that answer once are answered in the order in which they came, errors included; answers of
decoupled models as they come.  What is queued for a client that reads slowly keeps its blocks.  While
limits.GRPC_STREAM_REQUESTS_MAX requests and answers are there, or refusals of limits.GRPC_UNSENT_BYTES_MAX, what the client
sends is held, and the flow-control window of its call not refilled.
"""

from collections import deque
from sys import getsizeof

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from tisfast.engine.core cimport InferRequest
from tisfast.front.grpc.infer_call cimport InferenceStream
from tisfast.front.grpc.message cimport IDENTITY, OutMessage, coding_text, rendered_message, written_message
from tisfast.front.grpc.stream cimport GRPC_INTERNAL, GRPC_OK, GRPC_RESOURCE_EXHAUSTED, GRPC_UNAVAILABLE, grpc_code
from tisfast.wire.grpc.respond cimport STREAMED, GrpcBody, written_bytes
from tisfast.wire.record cimport Answer, InferInput

from tisfast import limits
from tisfast.codec.jobs import RenderJob
from tisfast.codec.messages import GRPC
from tisfast.errors import TisError, Unavailable
from tisfast.front.grpc.traced_answers import TracedAnswers
from tisfast.types import Status

cdef Py_ssize_t REQUESTS_MAX = limits.GRPC_STREAM_REQUESTS_MAX
cdef Py_ssize_t WAITING_MAX = limits.GRPC_STREAM_WAITING_MAX
cdef int64_t REFUSAL_BYTES = 400  # of the objects that hold one, its texts apart
cdef str SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests."


@cython.freelist(256)
cdef class StreamAnswer:
    """See stream_infer_call.pxd."""

    cdef int write_elsewhere(self, StreamInferCall call) except -1:
        """A codec process classifies or compresses the answer."""
        self.call = call
        self.job = RenderJob(
            call.session, self._written, form=GRPC, answer=self.answer, nbytes=0, coding=coding_text(call.coding),
            options={"streamed": True, "final": self.final})
        try:
            call.shared.codecs.submit(self.job)
        except TisError as error:
            self.job.error = error
            self._written(self.job)
        return 0

    def _written(self, job) -> None:
        """The codec's news about it: its turn may have come."""
        cdef StreamInferCall call = self.call
        self.call = None
        if call is not None and call.session is not None:
            call.session.resume(call.id)
            call.session.touch()


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


cdef class StreamRequest(AnswerSink):
    """See stream_infer_call.pxd."""

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
            self._drop_message(error)
        return 0

    cdef int on_message(self) except -1:
        cdef InferInput input
        if self.skipping:
            self.skipping = False
            return 0
        try:
            if self.shared.draining:
                raise Unavailable(SHUTTING_DOWN)
            if self.read_elsewhere():
                return 0
            input = self.read_request()
        except TisError as error:
            return self.refuse(error)
        return 0 if input is None else self.request_read(input)

    cdef int request_refused(self, object error) except -1:
        return self.refuse(error)

    cdef int request_read(self, InferInput input) except -1:
        cdef StreamRequest made
        cdef InferRequest request
        self.peeked_id = ""
        self.session.gate.moved()
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
        self._drop_written()
        InferenceStream.closed(self, error_code)
        if self.traces is not None:
            for traced in list(self.traces):
                traced.gone()
        return 0

    cdef int _drop_message(self, object error) except -1:
        self.skipping = True
        return self.refuse(error)

    def _drop_written(self) -> None:
        """The client does not read what is being written."""
        for answer in [self.sending, *(self.queue or ())]:
            if isinstance(answer, StreamAnswer) and (<StreamAnswer>answer).call is not None:
                (<StreamAnswer>answer).call = None
                self.shared.codecs.cancel((<StreamAnswer>answer).job)

    cdef int refuse(self, object error) except -1:
        """A message that became no request is answered in its turn, too."""
        cdef StreamRequest made = StreamRequest.__new__(StreamRequest)
        self._keep_promise()
        self.block = None
        self._drop_collected()
        # The codec knows the id; what fails before it has just been peeked at.
        name = error.facts["id"] if "id" in error.facts else self.peeked_id or ""
        self.peeked_id = ""
        made.answer = error_answer(int(error.status), error.message, name, "", "")
        made.answer.counted = REFUSAL_BYTES + <int64_t>(getsizeof(error.message) + getsizeof(name))
        self.count_unsent(made.answer.counted)
        self.order.append(made)
        self.advance()
        return self.throttle()

    cdef Py_ssize_t waiting(self) noexcept:
        """Requests and answers; a request that is not decoupled is in both of the first."""
        return max(len(self.requests), len(self.order)) + (len(self.queue) if self.queue is not None else 0)

    cdef bint crowded(self, int parts) except -1:
        return self.waiting() >= REQUESTS_MAX // parts or InferenceStream.crowded(self, parts)

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
            return self.finish(
                GRPC_RESOURCE_EXHAUSTED, f"more than {WAITING_MAX} answers of this stream wait; read them while you send")
        if answer.answer is not None and (
                written_bytes(answer.answer, self.coding != IDENTITY) > self.shared.codec_bytes_min):
            answer.write_elsewhere(self)
        return self.send(answer)

    cdef bint awaits(self, object queued) except -1:
        return (<StreamAnswer>queued).call is not None

    cdef OutMessage render(self, object queued):
        cdef StreamAnswer answer = queued
        cdef OutMessage message
        if answer.traced is not None:
            answer.traced.sending()
        message = self.rendered(answer)
        message.traced = answer.traced
        message.counted = answer.counted
        return message

    cdef OutMessage rendered(self, StreamAnswer answer):
        cdef GrpcBody body = self.shared.body
        try:
            if answer.job is not None and answer.job.error is not None:
                raise answer.job.error
            if answer.job is not None:
                return written_message(answer.job.rendered, answer.answer, self.coding)
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
        if self.finished or self.requests or self.job is not None or self.held is not None:
            return 0
        if self.client_done:
            return self.finish(GRPC_OK, None)
        if self.shared.draining:
            return self.finish(GRPC_UNAVAILABLE, SHUTTING_DOWN)
        return 0

    cdef int on_gone(self) except -1:
        cdef StreamRequest made
        self._keep_promise()
        self.block = None
        requests, self.requests = self.requests, set()
        self.order.clear()
        for made in requests:
            made.call = None
            if made.request is not None:
                made.runtime.cancel(made.request)
        return 0
