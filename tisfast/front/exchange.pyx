"""Requests of a connection and their answers: one whole, or a stream of events.  Layer 4 (front).

The engine calls an exchange when there is an answer; the connection calls `send` when it is the exchange's turn.  An
answer is rendered only then: answers may come before their turn.
"""

from collections import deque

from libc.stdint cimport uint64_t
from tisfast.front.answer_delivery cimport send_answer, send_generated, send_rendered, send_response
from tisfast.front.server_sent_events cimport render_event, send_event, send_rendered_event, stream_head
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.wire.infer_plan cimport OutputChoice
from tisfast.wire.respond cimport ResponseBody, text_bytes

from tisfast import limits
from tisfast.codec.jobs import RenderJob
from tisfast.codec.messages import GENERATE as GENERATE_FORM, INFER as INFER_FORM
from tisfast.errors import BadRequest, TisError
from tisfast.operations.http_response import Response, error_response
from tisfast.types import STATUS_CODES, Status

cdef Py_ssize_t WAITING_MAX = limits.HTTP_STREAM_WAITING_MAX
cdef str NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses")


cdef class ConnectionFace:
    """See exchange.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    cdef int flush(self) except -1:
        raise NotImplementedError("flush")

    cdef int give_up(self) except -1:
        raise NotImplementedError("give_up")

    cdef Exchange open(self):
        raise NotImplementedError("open")

    cdef int refuse(self, object response, bint close) except -1:
        raise NotImplementedError("refuse")

    cdef object sample(self, InferInput input):
        raise NotImplementedError("sample")


cdef class Exchange(AnswerSink):
    """See exchange.pxd."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        self.request = None
        if self.connection is None:
            return 0  # the client has gone; dropping the answer gives its block back
        self.answer = answer
        return self._complete(INFER_FORM)

    cdef int _complete(self, str form) except -1:
        cdef uint64_t nbytes = text_bytes(self.answer, self.head is not None and bool(self.head.accept_encoding))
        if nbytes > self.connection.text_bytes_max:
            return self._write_elsewhere(form, self.answer, nbytes)
        self.ready = True
        return self.connection.flush()

    cdef int _write_elsewhere(self, str form, Answer answer, uint64_t nbytes) except -1:
        """A codec process writes it."""
        coding = self.head.accept_encoding if form == INFER_FORM and not self.is_stream else ""
        self.job = RenderJob(self.connection, self._written, form=form, answer=answer, nbytes=nbytes, coding=coding)
        try:
            self.connection.codecs.submit(self.job)
        except TisError as error:
            self.job.error = error
            self._written(self.job)
        return 0

    def _written(self, job) -> None:
        """The codec's news about the answer."""
        self.job = None
        if self.connection is None:
            return
        if job.error is not None:
            self.answer = None
            self.respond(error_response(job.error.status, job.error.message, True))
            return
        self.rendered = job.rendered
        if not self.rendered.tensors:
            self.answer = None  # its memory is free
        self.ready = True
        self.connection.flush()

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        self.request = None
        if self.connection is None:
            return 0
        return self.respond(error_response(Status(status), message, request.executed))

    cdef int respond(self, object response) except -1:
        self.response = response
        self.ready = True
        return self.connection.flush()

    cdef int respond_when_done(self, object response) except -1:
        if isinstance(response, Response):
            return self.respond(response)
        self.connection.in_order = True  # who registers a region, or loads a model, may name it in the next request
        response.add_done_callback(self._done)
        return 0

    def _done(self, response) -> None:
        if self.connection is None:
            return  # the client has gone
        self.connection.in_order = False
        if response.cancelled():
            self.respond(error_response(Status.UNAVAILABLE, "the server stopped before it could answer", True))
        elif response.exception() is None:
            self.respond(response.result())
        else:  # our bug: answered, and reported by the loop
            text = f"unexpected {type(response.exception()).__name__} in the server; see its log"
            self.respond(error_response(Status.INTERNAL, text))
            raise response.exception()

    cdef bint send(self, SocketWriter sender, ResponseBody body) except -1:
        if self.rendered is not None:
            send_rendered(sender, body, self.answer, self.rendered, self.head, self.close_after)
        elif self.answer is not None:
            send_answer(sender, body, self.answer, self.head, self.close_after)
        else:
            send_response(sender, self.response, self.head, self.close_after)
        return True


cdef class GenerateExchange(Exchange):
    """See exchange.pxd."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        if final:
            self.request = None
        if self.connection is None or self.ready:
            return 0
        if answer is None and self.answer is None or answer is not None and self.answer is not None:
            return self._refuse(request, Status.INTERNAL, NOT_ONE, final)
        if answer is not None:
            self.answer = answer
        if not final:
            return 0
        return self._complete(GENERATE_FORM)

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        if final:
            self.request = None
        if self.connection is None or self.ready:
            return 0
        if self.answer is not None:
            return self._refuse(request, Status.INTERNAL, NOT_ONE, final)
        return self._refuse(request, Status(status), message, final)

    cdef int _refuse(self, InferRequest request, object status, str message, bint final) except -1:
        self.answer = None
        if not final:  # nobody reads what may still come
            self.runtime.cancel(request)
        return self.respond(error_response(status, message, request.executed))

    cdef bint send(self, SocketWriter sender, ResponseBody body) except -1:
        if self.rendered is not None:
            send_rendered(sender, body, self.answer, self.rendered, self.head, self.close_after)
        elif self.answer is not None:
            send_generated(sender, body, self.answer, self.head, self.close_after)
        else:
            send_response(sender, self.response, self.head, self.close_after)
        return True


cdef int check_events(OutputChoice choice) except -1:
    if choice.binary_default or choice.binary:
        raise BadRequest(
            "events (Accept: text/event-stream) carry JSON, and this request asks for binary outputs (binary_data, "
            "binary_data_output or a raw body); ask for JSON outputs or do not accept events")
    return 0


cdef class StreamExchange(Exchange):
    """See exchange.pxd."""

    def __cinit__(self):
        self.is_stream = True
        self.waiting = deque()

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        return self._arrived(answer, final)

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        return self._arrived((status, message), final)

    cdef int _arrived(self, object event, bint final) except -1:
        if final:
            self.request = None
        if self.connection is None:
            return 0
        if event is not None:
            self.waiting.append(event)
        self.ended = final
        self.ready = True
        if len(self.waiting) > WAITING_MAX:
            return self.connection.give_up()
        return self.connection.flush()

    cdef bint send(self, SocketWriter sender, ResponseBody body) except -1:
        """Send what is due.  Answers that the client does not take now wait here: `waiting` holds the answers' blocks, so a model that runs ahead
        fills its output arena and waits for the client."""
        if self.response is not None:  # refused before it became a request
            send_response(sender, self.response, self.head, self.close_after)
            return True
        if self.rendered is not None:
            self._send_written(sender)
        while self.waiting and not sender.backlog and self.job is None:
            self._send_next(sender, body)
        if self.waiting or self.job is not None:
            return False
        if not self.ended:
            self.ready = False
            return False
        if not self.finished:
            body.text.reset(0)
            self._write(sender, body, Status.OK)
        return True

    cdef int _send_next(self, SocketWriter sender, ResponseBody body) except -1:
        event = self.waiting.popleft()
        if isinstance(event, Answer) and text_bytes(<Answer>event, False) > self.connection.text_bytes_max:
            return self._write_elsewhere(
                GENERATE_FORM if self.generate else INFER_FORM, <Answer>event, text_bytes(<Answer>event, False))
        return self._write(sender, body, render_event(body, event, self.generate))

    cdef int _write(self, SocketWriter sender, ResponseBody body, int status) except -1:
        """Send body.text, with the head before it and the end behind it when they are due."""
        cdef bytes before = self._before(sender, status)
        return send_event(sender, before, body.text, not self.head.http10, self.finished)

    cdef bytes _before(self, SocketWriter sender, int status):
        cdef bytes before = b""
        if not self.started:  # the first event's status is that of all
            self.started = True
            self.close_after = self.close_after or self.head.http10
            sender.status = STATUS_CODES[status].http
            before = stream_head(sender.status, self.head, self.close_after)
        self.finished = self.ended and not self.waiting
        return before

    cdef int _send_written(self, SocketWriter sender) except -1:
        """An event that a codec process has written."""
        cdef object rendered = self.rendered
        self.rendered = None
        return send_rendered_event(sender, self._before(sender, Status.OK), rendered.text, not self.head.http10, self.finished)

    def _written(self, job) -> None:
        """See Exchange: here one event of several."""
        self.job = None
        if self.connection is None:
            return
        if job.error is not None:
            self.waiting.appendleft((job.error.status, job.error.message))
        self.rendered = job.rendered
        self.connection.flush()
