"""ModelInfer, and how inference messages reach their model's arena.  Layer 4 (front).

The model's name is read off the first bytes of a message; from then on they are copied once, from the buffer that all
connections receive into, to a block of the model's arena.  Messages that are compressed, or that name their model late,
are collected first.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.engine.core cimport InferRequest
from tisfast.front.grpc.message cimport rendered_message
from tisfast.front.grpc.stream cimport GRPC_INTERNAL, GRPC_OK, grpc_code
from tisfast.wire.grpc.infer cimport PEEK_FOUND, PEEK_MORE, Peek, message_start, read_grpc_infer
from tisfast.wire.grpc.respond cimport UNARY
from tisfast.wire.record cimport Answer, InferInput

from tisfast import limits
from tisfast.errors import TisError, Unsupported
from tisfast.front.grpc.traced import sample
from tisfast.native.memory import now_ns
from tisfast.types import Status

cdef uint64_t PEEK_BYTES_MAX = limits.GRPC_PEEK_BYTES_MAX
cdef str DECOUPLED = "ModelInfer RPC doesn't support models with decoupled transaction policy"


cdef class InferenceStream(GrpcStream):
    """See infer.pxd."""

    cdef int on_piece(self, const uint8_t *data, uint64_t n) except -1:
        cdef bytes held
        cdef unsigned char *at
        if self.filled == 0 and self.shared.tracer is not None:
            self.received_ns = now_ns()
        if self.block is not None:
            at = self.block.data + self.start + self.filled
            if at != data:  # else it was received there
                memcpy(at, data, n)
            if n < self.total - self.filled:
                self.runtime.expect(self.total - self.filled - n)
            return 0
        if self.compressed or self.filled > PEEK_BYTES_MAX:
            return self._collect(data, n)
        if self.filled == 0 and self._peek(data, n, self.total) == PEEK_FOUND:
            self._take_block(self.total)
            memcpy(self.block.data + self.start, data, n)
            return 0
        self._collect(data, n)
        if self.finished or self.filled == 0:
            return 0
        held = self.collected.getvalue()  # of PEEK_BYTES_MAX and one piece at most
        if self._peek(<const unsigned char *>PyBytes_AS_STRING(held), <uint64_t>len(held), self.total) == PEEK_FOUND:
            self._take_block(self.total)
            memcpy(self.block.data + self.start, PyBytes_AS_STRING(held), PyBytes_GET_SIZE(held))
            self._drop_collected()
        return 0

    cdef uint8_t *place(self, size_t *room) noexcept:
        if self.block is None or self.finished:
            return NULL
        room[0] = self.total - self.filled
        return self.block.data + self.start + self.filled

    cdef int _peek(self, const uint8_t *data, uint64_t n, uint64_t total) except -1:
        """`shared.peek` is everybody's: what outlives this turn is noted."""
        try:
            return self.shared.peek.read(data, n, total)
        finally:
            self.peeked_id = self.shared.peek.id

    cdef int _take_block(self, uint64_t nbytes) except -1:
        """Room in the arena of the model that `shared.peek` has found.  Raises TisError."""
        cdef Peek peek = self.shared.peek
        self.runtime = self.shared.registry.resolve(peek.name, peek.version)
        self.start = message_start(self.runtime.signature.record_room, peek.raw_at)
        self.block = self.runtime.arena.take(self.start + nbytes)
        return 0

    cdef InferInput read_request(self):
        cdef bytes data
        cdef uint64_t nbytes = self.total
        cdef Block block
        if self.unforwardable is not None:
            raise type(self.unforwardable)(self.unforwardable.message)
        if self.block is None:
            data = self.take_message()
            nbytes = <uint64_t>len(data)
            self._peek(<const unsigned char *>PyBytes_AS_STRING(data), nbytes, nbytes)
            self._take_block(nbytes)
            memcpy(self.block.data + self.start, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        block, self.block = self.block, None
        return read_grpc_infer(
            self.runtime.signature, self.runtime.arena, block, self.start, nbytes, self.shared.max_input_bytes,
            self.shared.regions, self.forwarded)

    cdef object sample(self, InferInput input):
        received_ns, self.received_ns = self.received_ns, 0
        return sample(self.shared.tracer, input, self.metadata, received_ns)


cdef class InferCall(InferenceStream):
    """One ModelInfer call; it is its request's Reply."""

    cdef int on_message(self) except -1:
        if self.input is not None:
            return self.finish(GRPC_INTERNAL, "ModelInfer takes one message, and a second one came")
        self.input = self.read_request()
        if self.runtime.signature.decoupled:
            raise Unsupported(DECOUPLED)  # row 13.12
        return 0

    cdef int on_half_close(self) except -1:
        cdef InferRequest request
        cdef InferInput input = self.input
        if input is None:
            return self.finish(GRPC_INTERNAL, "ModelInfer takes one message, and none came")
        self.input = None
        if self.shared.tracer is not None:
            self.trace = self.sample(input)
        self.shared.cores.seen(self.session.fd, self.runtime, self.total)
        request = self.runtime.submit(input, self, self.trace)
        if not self.finished:
            self.request = request
        return 0

    cdef int on_tick(self) except -1:
        InferenceStream.on_tick(self)
        return self.end_waiting() if self.input is not None else 0

    cdef int on_gone(self) except -1:
        cdef InferRequest request = self.request
        self.input = None
        self.block = None
        if request is not None:
            self.request = None
            self.runtime.cancel(request)
        return 0

    cdef int closed(self, uint32_t error_code) except -1:
        cdef bint whole = self.finished
        InferenceStream.closed(self, error_code)
        if self.trace is not None:
            if whole:
                self.trace.mark("GRPC_SEND_END")
            self.trace.finished()
        return 0

    # ---- the engine's Reply

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        self.request = None
        if self.finished:
            return 0  # the client has gone; dropping the answer gives its block back
        if self.trace is not None:
            self.trace.mark("GRPC_SEND_START")
        try:
            self.shared.body.render(answer, UNARY, True)
            self.sending = rendered_message(self.shared.body, answer, self.coding)
            self.out_tick = self.shared.tick  # the client has its time from now on
        except TisError as error:
            return self.fail(error)
        except Exception as error:
            return self.break_down("an answer cannot be sent", error)
        return self.finish(GRPC_OK, None)

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        self.request = None
        if self.trace is not None and not self.finished:
            self.trace.mark("GRPC_SEND_START")
        return self.finish(grpc_code(status), message)
