"""ModelInfer, and how inference messages reach their model's arena.  Layer 4 (front).

The model's name is read off the first bytes of a message; from then on they are copied once, from the buffer that all
connections receive into, to a block of the model's arena.  Messages that are compressed, or that name their model late,
are collected first.
"""

import os
from io import BytesIO

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.engine.core cimport InferRequest
from tisfast.front.body_collector cimport SpilledBody
from tisfast.front.grpc.message cimport IDENTITY, OutMessage, coding_text, rendered_message, written_message
from tisfast.front.grpc.stream cimport GRPC_INTERNAL, GRPC_OK, GrpcStream, grpc_code
from tisfast.native.memory cimport promise
from tisfast.wire.draft cimport InferBody
from tisfast.wire.grpc.infer cimport PEEK_FOUND, PEEK_MORE, Peek, head_bytes, message_start, read_grpc_infer
from tisfast.wire.grpc.respond cimport UNARY, written_bytes
from tisfast.wire.record cimport Answer, InferInput

from tisfast import limits, tuning
from tisfast.codec.jobs import ParseJob, BodyInBlock, RenderJob
from tisfast.codec.messages import GRPC
from tisfast.errors import TisError, Unavailable, Unsupported
from tisfast.front.grpc.traced_answers import sample
from tisfast.front.sequence_drain import check_continues
from tisfast.native.memory import now_ns
from tisfast.types import Status
from tisfast.wire.compress import INPUT_SIZE_HINT, TooLong, beginning, decompress
from tisfast.wire.infer import ReadElsewhere

cdef uint64_t EXPANDED_BYTES_MAX = limits.GRPC_EXPANDED_BYTES_MAX
cdef uint64_t EXPANDED_BYTES_FREE = limits.EXPANDED_BYTES_FREE
cdef uint64_t PEEK_BYTES_MAX = limits.GRPC_PEEK_BYTES_MAX
cdef uint64_t PROMISED_BYTES_MAX = limits.GRPC_PROMISED_BYTES_MAX
cdef uint64_t PROMISE_LOOKED_BYTES = limits.GRPC_PROMISE_LOOKED_BYTES
cdef uint64_t WALKED_FACTOR = tuning.CODEC_WALKED_FACTOR
cdef str DECOUPLED = "ModelInfer RPC doesn't support models with decoupled transaction policy"


cdef class InferenceStream(GrpcStream):
    """See infer_call.pxd."""

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
            return self._note_come(self.filled + n)
        if self.compressed or self.filled > PEEK_BYTES_MAX:
            return self._collect(data, n)
        if self.filled == 0:
            self.peek_next = 2 * n
            if self._peek(data, n, self.total) == PEEK_FOUND:
                self._take_block(self.total)
                memcpy(self.block.data + self.start, data, n)
                return self._note_come(n)
        self._collect(data, n)
        # Looked at from its beginning each time: so only when there is twice as much, or all.
        if self.finished or self.filled == 0 or self.filled + n < min(self.peek_next, self.total):
            return 0
        self.peek_next = 2 * (self.filled + n)
        if type(self.collected) is SpilledBody:  # of PEEK_BYTES_MAX and one piece at most
            held = os.pread(self.collected.fileno(), self.filled, 0)
        else:
            held = self.collected.getvalue()
        if self._peek(<const unsigned char *>PyBytes_AS_STRING(held), <uint64_t>len(held), self.total) == PEEK_FOUND:
            self._take_block(self.total)
            memcpy(self.block.data + self.start, PyBytes_AS_STRING(held), PyBytes_GET_SIZE(held))
            self._drop_collected()
            self._note_come(<uint64_t>len(held))
        return 0

    cdef int _note_come(self, uint64_t come) except -1:
        if come == self.total:
            return self._keep_promise()
        if self.promise is None:
            self.promise = promise(self.block.arena, self, self.total, come)
        else:
            self.promise.come = come
        return 0

    cdef int _keep_promise(self) except -1:
        """The message is complete, or not wanted any more."""
        if self.promise is not None:
            self.promise.withdraw()
            self.promise = None
        return 0

    def give_way(self) -> None:
        """Others find no room in the model's arena, and this message comes too slowly."""
        self.promise = self.block = None
        self._drop_message(Unavailable(
            f"{self.filled} of {self.total} bytes of the message have come, too slowly while others find no room; retry later"))

    cdef int _drop_message(self, object error) except -1:
        return self.fail(error)

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
        if self.began_ns:
            self.asked = peek.name, self.peeked_id or ""
        self.runtime = self.shared.registry.resolve(peek.name, peek.version)
        self.start = message_start(self.runtime.signature.record_room, peek.raw_at)
        if nbytes > PROMISE_LOOKED_BYTES:
            self._check_promises(nbytes)
        self.block = self.runtime.arena.take(self.start + nbytes)
        return 0

    def _check_promises(self, uint64_t nbytes) -> None:
        """Check the bytes that all calls of the connection have announced and not sent."""
        cdef uint64_t owed = nbytes
        for other in self.session.streams.values():
            if isinstance(other, InferenceStream) and (<InferenceStream>other).promise is not None:
                owed += (<InferenceStream>other).promise.nbytes - (<InferenceStream>other).promise.come
        if owed > PROMISED_BYTES_MAX:
            raise Unavailable(
                f"the messages that have begun on this connection lack {owed} bytes; {PROMISED_BYTES_MAX} is the limit")

    cdef object new_collection(self):
        return SpilledBody() if self.total > self.shared.codec_bytes_min else GrpcStream.new_collection(self)

    cdef bint _is_long(self) except -1:
        """Whether reading the message, which lies in a block, takes long: not where nearly all of it is raw tensors."""
        cdef const unsigned char *data = self.block.data + self.start
        return self.total > self.shared.codec_bytes_min and (
            head_bytes(data, self.total) > self.shared.codec_bytes_min or (
                self.runtime.signature.has_strings and self.total > WALKED_FACTOR * self.shared.codec_bytes_min))

    cdef bint read_elsewhere(self) except -1:
        cdef bytes data
        cdef uint64_t most, here
        cdef Block block = self.block
        if self.shared.codecs is None or self.unforwardable is not None:
            return False
        if block is not None:
            if not self._is_long():
                return False
            self.block = None
            return self._read_by_codec(BodyInBlock(block, self.start, self.total), self.total)
        if type(self.collected) is SpilledBody:
            start = os.pread(self.collected.fileno(), PEEK_BYTES_MAX, 0)
            return self._read_by_codec(self.collected, self.total, self.expanded_max(start) if self.compressed else 0)
        if not self.compressed or self.collected is None:
            return False
        data = self.collected.getvalue()
        most = self.expanded_max(data)
        here = min(self.shared.codec_bytes_min, most)
        try:
            self.collected = BytesIO(decompress(self.encoding.decode("latin-1"), data, here))
        except TooLong:
            if here == most:
                raise
            return self._read_by_codec(data, <uint64_t>len(data), most)
        self.compressed = False  # it is not any more
        return False

    cdef int _read_by_codec(self, object body, uint64_t nbytes, uint64_t expanded_max=0) except -1:
        cdef bint collected = not isinstance(body, BodyInBlock)
        self.wait_for(ParseJob(
            self.session, self._read, form=GRPC, runtime=None if collected else self.runtime, body=body, nbytes=nbytes,
            regions=self.shared.regions, resolve=self.shared.registry.resolve, options={
                "coding": self.encoding.decode("latin-1") if collected and self.compressed else "",
                "inflated_max": expanded_max, "max_input_bytes": self.shared.max_input_bytes,
                "forwarded": self.forwarded}))
        return True

    def _read(self, job) -> None:
        """The codec's news about the message."""
        if self.finished:
            return
        self._drop_collected()
        try:
            if job.error is not None:
                raise job.error
            self.runtime = job.runtime
            if self.shared.closing is not None:
                check_continues(job.request, self.shared.closing)
            self.request_read(job.request)
        except TisError as error:
            self.request_refused(error)
        except Exception as error:
            self.break_down("a call failed", error)
        self.job_done()

    cdef int request_read(self, InferInput input) except -1:
        raise NotImplementedError(f"{type(self).__name__}.request_read")

    cdef int request_refused(self, object error) except -1:
        return self.fail(error)

    cdef uint64_t expanded_max(self, bytes data) except? 0:
        """The bytes that a message may expand to, by the model that its beginning names."""
        cdef Peek peek = self.shared.peek
        cdef bytes start = beginning(self.encoding.decode("latin-1"), data, PEEK_BYTES_MAX)
        if self._peek(<const unsigned char *>PyBytes_AS_STRING(start), <uint64_t>len(start), UINT64_MAX) != PEEK_FOUND:
            return EXPANDED_BYTES_FREE  # libraries write fields in order, the model's name first
        runtime = self.shared.registry.resolve(peek.name, peek.version)
        return min(EXPANDED_BYTES_MAX, (<Runtime>runtime).signature.expanded_bytes_max)

    cdef str expanded_hint(self):
        return INPUT_SIZE_HINT

    cdef InferInput read_request(self):
        cdef bytes data
        cdef uint64_t nbytes = self.total
        cdef InferBody body
        cdef InferInput input
        if self.unforwardable is not None:
            raise type(self.unforwardable)(self.unforwardable.message)
        if self.block is None:
            data = self.take_message()
            nbytes = <uint64_t>len(data)
            self._peek(<const unsigned char *>PyBytes_AS_STRING(data), nbytes, nbytes)
            self._take_block(nbytes)
            memcpy(self.block.data + self.start, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        body = InferBody.__new__(InferBody)
        body.model, body.arena, body.regions = self.runtime.signature, self.runtime.arena, self.shared.regions
        body.start, body.nbytes, body.max_input_bytes = self.start, nbytes, self.shared.max_input_bytes
        body.forwarded = self.forwarded
        body.block, self.block = self.block, None
        try:
            input = read_grpc_infer(body)
        except ReadElsewhere:
            self._read_by_codec(BodyInBlock(body.block, body.start, nbytes), nbytes)
            return None
        if self.shared.closing is not None:
            check_continues(input, self.shared.closing)
        return input

    cdef object sample(self, InferInput input):
        received_ns, self.received_ns = self.received_ns, 0
        return sample(self.shared.tracer, input, self.metadata, received_ns)


cdef class InferCall(InferenceStream):
    """One ModelInfer call; it is its request's AnswerSink."""

    cdef int on_message(self) except -1:
        cdef InferInput input
        if self.input is not None:
            return self.finish(GRPC_INTERNAL, "ModelInfer takes one message, and a second one came")
        if self.read_elsewhere():
            return 0
        input = self.read_request()
        return 0 if input is None else self.request_read(input)

    cdef int request_read(self, InferInput input) except -1:
        self.input = input
        self.session.gate.moved()
        if self.runtime.signature.decoupled:
            raise Unsupported(DECOUPLED)
        return 0

    cdef int on_half_close(self) except -1:
        cdef InferRequest request
        cdef InferInput input = self.input
        if input is None:
            return self.finish(GRPC_INTERNAL, "ModelInfer takes one message, and none came")
        self.input = None
        if self.shared.tracer is not None:
            self.trace = self.sample(input)
        request = self.runtime.submit(input, self, self.trace)
        if not self.finished:
            self.request = request
        return 0

    cdef int on_tick(self) except -1:
        InferenceStream.on_tick(self)
        return self.end_waiting() if self.input is not None else 0

    cdef int on_gone(self) except -1:
        cdef InferRequest request = self.request
        self._keep_promise()
        self.input = None
        self.block = None
        self._drop_written()
        if request is not None:
            self.request = None
            self.runtime.cancel(request)
        return 0

    cdef int closed(self, uint32_t error_code) except -1:
        cdef bint whole = self.finished
        InferenceStream.closed(self, error_code)
        self._drop_written()
        if self.trace is not None:
            if whole:
                self.trace.mark("GRPC_SEND_END")
            self.trace.finished()
        return 0

    # ---- the engine's AnswerSink

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        self.request = None
        self.executed = True
        if self.finished:
            return 0  # the client has gone; dropping the answer gives its block back
        if written_bytes(answer, self.coding != IDENTITY) > self.shared.codec_bytes_min:
            return self._write_elsewhere(answer)
        try:
            self.shared.body.render(answer, UNARY, True)
            return self._answer(rendered_message(self.shared.body, answer, self.coding))
        except TisError as error:
            return self.fail(error)
        except Exception as error:
            return self.break_down("an answer cannot be sent", error)

    cdef int _answer(self, OutMessage message) except -1:
        if self.trace is not None:
            self.trace.mark("GRPC_SEND_START")
        self.sending = message
        self.out_tick = self.shared.tick  # the client has its time from now on
        return self.finish(GRPC_OK, None)

    def _write_elsewhere(self, answer) -> int:
        """A codec process classifies or compresses it."""
        self.written = job = RenderJob(
            self.session, self._written, form=GRPC, answer=answer, nbytes=0, coding=coding_text(self.coding),
            options={"streamed": False, "final": True})
        try:
            self.shared.codecs.submit(job)
        except TisError as error:
            self.written = None
            self.fail(error)
        return 0

    def _written(self, job) -> None:
        """The codec's news about the answer."""
        answer = self.written.answer
        self.written = None
        if self.finished:
            return
        try:
            if job.error is not None:
                raise job.error
            self._answer(written_message(job.rendered, answer, self.coding))
        except TisError as error:
            self.fail(error)
        except Exception as error:
            self.break_down("an answer cannot be sent", error)

    def _drop_written(self) -> None:
        job, self.written = self.written, None
        if job is not None:
            self.shared.codecs.cancel(job)

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        self.request = None
        if self.trace is not None and not self.finished:
            self.trace.mark("GRPC_SEND_START")
        self.executed = request.executed
        return self.finish(grpc_code(status), message)
