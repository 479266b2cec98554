"""Calls of the methods that are no inferences: one message in and out, or a stream of them.  Layer 4 (front)."""

from libc.stdint cimport int64_t, uint64_t
from tisfast.front.grpc.message cimport OutMessage, bytes_message
from tisfast.front.grpc.stream cimport GRPC_INTERNAL, GRPC_OK, GRPC_UNAVAILABLE, GrpcStream

from tisfast.errors import TisError

cdef int64_t MESSAGE_BYTES = 160  # of an answer's objects, its text apart


cdef class UnaryCall(GrpcStream):
    """See unary.pxd."""

    cdef int on_message(self) except -1:
        if self.request is not None:
            return self.finish(GRPC_INTERNAL, f"{self.path} takes one message, and a second one came")
        self.request = self.take_message()
        self.session.gate.moved()
        self.counted = <uint64_t>len(self.request)  # held until the client ends its side: it counts until then
        return self.shared.count_collected(<int64_t>self.counted)

    cdef int on_half_close(self) except -1:
        request, self.request = self.request, None
        if request is None:
            return self.finish(GRPC_INTERNAL, f"{self.path} takes one message, and none came")
        try:
            answer = self.handler(request, self.metadata)
        except Exception as error:
            return self._failed(error)
        if isinstance(answer, bytes):
            return self._answer(answer)
        answer.add_done_callback(self._done)
        return 0

    cdef int _answer(self, bytes answer) except -1:
        self.sending = bytes_message(answer, self.coding)
        self.out_tick = self.shared.tick  # the client has its time from now on
        return self.finish(GRPC_OK, None)

    cdef int _failed(self, error) except -1:
        if isinstance(error, TisError):
            return self.fail(error)
        return self.break_down(f"{self.path} failed", error)

    def _done(self, answer) -> None:
        """The awaited result is there."""
        if self.finished:  # the client has gone
            error = None if answer.cancelled() else answer.exception()
            if error is not None and not isinstance(error, TisError):
                raise error  # our bug, which the loop reports
            return
        if answer.cancelled():
            self.executed = True
            self.finish(GRPC_UNAVAILABLE, "the server stopped before it could answer")
        elif answer.exception() is not None:
            self._failed(answer.exception())
        else:
            self._answer(answer.result())

    cdef int on_tick(self) except -1:
        GrpcStream.on_tick(self)
        return self.end_waiting() if self.request is not None else 0

    cdef int on_gone(self) except -1:
        self.request = None
        return 0


cdef class StreamingCall(GrpcStream):
    """See unary.pxd."""

    cdef int start_call(self, object method) except -1:
        self.closes = method.closes
        try:
            self.call = method.open(self.push)
        except TisError as error:
            return self.fail(error)
        except Exception as error:
            return self.break_down("a streaming call cannot be opened", error)
        return 0

    def push(self, bytes message) -> None:
        """Send a message now; nothing happens once the call is over."""
        cdef OutMessage made
        if not self.finished:
            made = bytes_message(message, self.coding)
            made.counted = MESSAGE_BYTES + <int64_t>made.nbytes
            self.count_unsent(made.counted)
            self.send(made)

    cdef int on_message(self) except -1:
        self.session.gate.moved()
        for answer in self.call.on_message(self.take_message()):
            self.push(answer)
        return self.throttle()

    cdef int on_half_close(self) except -1:
        if self.closes:
            self._end_call()
            self.finish(GRPC_OK, None)
        return 0

    cdef int drain(self) except -1:
        return self.finish(GRPC_UNAVAILABLE, "GRPC server is shutting down and has stopped accepting new requests.")

    cdef int on_gone(self) except -1:
        self._end_call()
        return 0

    def _end_call(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call.on_end()
