"""From the bodies of a connection's requests to requests of the engine; see body_reader.pxd.  Layer 4 (front).

As soon as the head of an inference is known, its body goes straight into a block of the model's arena.  All other bodies are
collected beside.  What takes long to read is read by a codec process, and its connection waits for that.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from tisfast.engine.core cimport InferRequest
from tisfast.front.exchange cimport check_events
from tisfast.native.memory cimport promise
from tisfast.wire.generate cimport read_generate
from tisfast.wire.head cimport GENERATE, INFER, NO_CALL
from tisfast.wire.infer cimport body_start, read_infer
from tisfast.wire.infer_plan cimport OutputChoice

from tisfast import limits, tuning
from tisfast.codec.jobs import ParseJob, BodyInBlock
from tisfast.codec.messages import GENERATE as GENERATE_FORM, INFER as INFER_FORM
from tisfast.errors import BadRequest, TisError, Unsupported
from tisfast.front.sequence_drain import check_continues
from tisfast.operations.http_response import error_response, too_large
from tisfast.types import Status
from tisfast.wire.compress import TooLong, check_coding, decompress
from tisfast.wire.infer import ReadElsewhere

cdef uint64_t LOAD_EXPANDED_BYTES_MAX = limits.LOAD_EXPANDED_BYTES_MAX
cdef uint64_t CHUNKED_BODY_BYTES_MAX = limits.HTTP_CHUNKED_BODY_BYTES_MAX
cdef uint64_t WALKED_FACTOR = tuning.CODEC_WALKED_FACTOR


cdef class BodyReader:
    """See body_reader.pxd."""

    def __cinit__(self, ListenerContext shared, ConnectionFace connection):
        self.shared = shared
        self.connection = connection
        self.collector = BodyCollector(shared)

    cdef bint is_infer(self) noexcept:
        return self.head.is_infer and self.shared.registry is not None

    # ---- bytes of a body

    cdef int begin(self, Head head, uint64_t input_max) except -1:
        cdef uint64_t nbytes = max(head.content_length, 0)
        self.head = head
        self.input_max = input_max
        self.total = nbytes
        if head.chunked:
            return self._collect()
        if self.is_infer() and not head.content_encoding:
            try:
                self._take_block(nbytes)
            except TisError as error:
                return self.connection.refuse(error_response(error.status, error.message), False)
            self.sink = ARENA
            return 0
        if nbytes > input_max:
            return self.connection.refuse(too_large(nbytes, input_max), False)
        if nbytes:
            return self._collect()
        self.sink = COLLECTED
        return 0

    cdef int _collect(self) except -1:
        cdef bint chunked = self.head.chunked
        cdef uint64_t nbytes = self._collect_max() if chunked else self.total
        try:
            self.collector.begin(nbytes, chunked, self.shared.registry is not None and self.head.call != NO_CALL)
        except TisError as error:
            return self.connection.refuse(error_response(error.status, error.message), chunked)
        self.sink = COLLECTED
        return 0

    cdef uint64_t _collect_max(self) noexcept:
        """Most bytes of a body of unknown length: an inference may carry binary tensors beyond the JSON limit."""
        if self.is_infer() and not self.head.content_encoding:
            return max(self.shared.max_input_bytes, CHUNKED_BODY_BYTES_MAX)
        return self.input_max

    cdef int _take_block(self, uint64_t nbytes) except -1:
        """A block for the body of the current head's model.  Raises TisError."""
        cdef Runtime runtime = self._resolve()
        cdef InferBody body = InferBody.__new__(InferBody)
        body.model, body.arena, body.regions = runtime.signature, runtime.arena, self.shared.regions
        body.nbytes, body.head_bytes = nbytes, self.head.inference_header_length
        body.max_input_bytes = self.shared.max_input_bytes
        body.forwarded = b"" if self.verdict is None else self.verdict.forwarded
        body.start = body_start(runtime.signature.record_room, body.head_bytes)
        body.block = runtime.arena.take(body.start + nbytes)
        self.body, self.runtime = body, runtime
        self.total = nbytes
        return 0

    cdef Runtime _resolve(self):
        """The runtime of the current head's model, which can be asked in this way.  Raises TisError."""
        cdef Head head = self.head
        cdef Runtime runtime = self.shared.registry.resolve(head.name, head.version)
        if head.is_infer and runtime.signature.decoupled and not head.accepts_events:
            raise Unsupported(
                "HTTP end point doesn't support models with decoupled transaction policy; ask with Accept: "
                "text/event-stream, which streams the responses, or use generate_stream")
        return runtime

    cdef int add(self, const unsigned char *data, Py_ssize_t n, uint64_t left) except -1:
        if self.sink == ARENA:
            memcpy(self.place(left + <uint64_t>n), data, n)
            return self.arrived(left)
        if self.sink == COLLECTED:
            try:
                self.collector.add(data, n)
            except TisError as error:
                self.connection.refuse(error_response(error.status, error.message), True)
        return 0

    cdef unsigned char *place(self, uint64_t left) noexcept:
        return self.body.block.data + self.body.start + (self.body.nbytes - left)

    cdef int arrived(self, uint64_t left) except -1:
        self.receiver.await_body(left)
        if left:
            self.runtime.expect(left)
            if self.promise is None:
                self.promise_rest(left)
            else:
                self.promise.come = self.total - left
        return 0

    cdef int promise_rest(self, uint64_t left) except -1:
        if self.promise is None:
            self.promise = promise(self.body.arena, self, self.total, self.total - left)
        return 0

    cdef int _keep_promise(self) except -1:
        """The body is complete, or not wanted any more."""
        if self.promise is not None:
            self.promise.withdraw()
            self.promise = None
        return 0

    def give_way(self) -> None:
        """Others find no room in the model's arena, and this body comes too slowly."""
        cdef uint64_t come = self.promise.come
        self.promise = self.body = self.runtime = None
        self.receiver.await_any()
        self.connection.refuse(error_response(
            Status.UNAVAILABLE, f"{come} of {self.total} bytes of the request have come, too slowly while others find "
            "no room; retry later"), True)

    cdef int drop(self) except -1:
        if self.job is not None:
            self.connection.codecs.cancel(self.job)
            self.job = self.read_for = None
        self._keep_promise()
        self.sink = NOWHERE
        self.body = self.runtime = None
        self.collector.drop()
        self.connection = None  # they refer to each other
        return 0

    # ---- whole bodies

    cdef int end(self) except -1:
        cdef Sink sink = self.sink
        self.sink = NOWHERE
        if sink == ARENA:
            self._keep_promise()
            return self._infer()
        return self._collected() if sink == COLLECTED else 0

    cdef int _collected(self) except -1:
        """A request whose body was collected outside an arena, or that has none."""
        cdef Head head = self.head
        cdef SpilledBody spilled = self.collector.spilled()
        cdef uint64_t most, here
        cdef bytes data
        if spilled is not None:
            return self._read_spilled(spilled)
        data = self.collector.take()
        try:
            if head.call >= GENERATE and self.shared.registry is not None:
                return self._generate(data)
            if head.content_encoding:
                if not self.is_infer():
                    data = decompress(head.content_encoding, data, min(self.input_max, LOAD_EXPANDED_BYTES_MAX), "")
                    return self.connection.open().respond_when_done(self.shared.handle(head, data))
                most = self._expanded_max(self.shared.registry.resolve(head.name, head.version))
                here = min(most, self.shared.codec_bytes_min)
                try:
                    data = decompress(head.content_encoding, data, here)
                except TooLong:
                    if here == most:
                        raise
                    runtime = self._resolve()  # before the request has a place among those that are to be answered
                    return self._read_elsewhere(
                        self.connection.open(), runtime, INFER_FORM, data, <uint64_t>len(data))
            if self.is_infer():
                self._take_block(len(data))
                memcpy(self.place(self.total), PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
                return self._infer()
        except TisError as error:
            return self.connection.refuse(error_response(error.status, error.message), False)
        return self.connection.open().respond_when_done(self.shared.handle(head, data))

    cdef uint64_t _expanded_max(self, Runtime runtime) noexcept:
        """The bound of an expanded body: the bytes that its model, or the call (None), can use."""
        return self.input_max if runtime is None else min(self.input_max, runtime.signature.expanded_bytes_max)

    cdef int _infer(self) except -1:
        """The body is in the block: parse it and queue the request."""
        cdef Exchange exchange = self.connection.open()
        cdef Runtime runtime = self.runtime
        cdef InferBody body = self.body
        cdef InferInput input
        self.body = self.runtime = None  # an idle connection must not keep the memory of a model that is unloaded
        if body.nbytes > self.shared.codec_bytes_min and self._is_long(body):
            place = BodyInBlock(body.block, body.start, body.nbytes)
            return self._read_elsewhere(exchange, runtime, INFER_FORM, place, body.nbytes)
        try:
            input = read_infer(body)
        except ReadElsewhere:
            place = BodyInBlock(body.block, body.start, body.nbytes)
            return self._read_elsewhere(exchange, runtime, INFER_FORM, place, body.nbytes)
        except Exception as error:
            return exchange.respond(self.shared.refusal(error, self.head))
        try:
            if self.shared.closing is not None:
                check_continues(input, self.shared.closing)
            if self.head.accepts_events:
                check_events(<OutputChoice>input.outputs)
        except Exception as error:
            return exchange.respond(self.shared.refusal(error, self.head))
        return self._submit(exchange, runtime, input)

    cdef int _generate(self, bytes text) except -1:
        """A generate request, whose body is JSON and nothing else."""
        cdef Exchange exchange = self.connection.open()
        cdef Head head = self.head
        cdef Runtime runtime
        cdef InferInput input
        try:
            if head.content_encoding:
                raise BadRequest("Unsupported content-encoding, only 'identity' is supported.")
            runtime = self.shared.registry.resolve(head.name, head.version)
            input = read_generate(runtime.signature, runtime.arena, text, self.shared.max_input_bytes)
            if self.shared.closing is not None:
                check_continues(input, self.shared.closing)
        except Exception as error:
            return exchange.respond(self.shared.refusal(error, head))
        return self._submit(exchange, runtime, input)

    cdef bint _is_long(self, InferBody body) noexcept:
        """Whether reading the body takes long: of binary tensors only where their strings are counted."""
        return body.head_bytes < 0 or <uint64_t>body.head_bytes > self.shared.codec_bytes_min or (
            body.model.has_strings and body.nbytes > WALKED_FACTOR * self.shared.codec_bytes_min)

    cdef int _read_spilled(self, SpilledBody body) except -1:
        """A large body that was collected in a memory file."""
        cdef Exchange exchange = self.connection.open()
        cdef Head head = self.head
        try:
            if head.call >= GENERATE and head.content_encoding:
                raise BadRequest("Unsupported content-encoding, only 'identity' is supported.")
            check_coding(head.content_encoding)
            runtime = self._resolve()
        except Exception as error:
            self.collector.drop()
            return exchange.respond(self.shared.refusal(error, head))
        return self._read_elsewhere(
            exchange, runtime, GENERATE_FORM if head.call >= GENERATE else INFER_FORM, body, body.nbytes)

    cdef int _read_elsewhere(
            self, Exchange exchange, Runtime runtime, str form, object body, uint64_t nbytes) except -1:
        """A codec process parses it.  Until it has, nothing that the client sent behind it is looked at."""
        cdef Head head = self.head
        self.total = nbytes
        self.read_for = exchange
        options = {
            "coding": head.content_encoding,
            "inflated_max": self._expanded_max(runtime),
            "head_bytes": head.inference_header_length,
            "max_input_bytes": self.shared.max_input_bytes,
            "forwarded": b"" if self.verdict is None else self.verdict.forwarded}
        try:
            self.job = ParseJob(
                self.connection, self._read, form=form, runtime=runtime, body=body, nbytes=nbytes,
                regions=self.shared.regions, options=options)
            self.connection.codecs.submit(self.job)
        except TisError as error:
            self.job = self.read_for = None
            self.collector.drop()
            return exchange.respond(self.shared.refusal(error, head))
        return 0

    def _read(self, job) -> None:
        """The codec's news about the current request."""
        cdef Exchange exchange = self.read_for
        self.job = self.read_for = None
        self.collector.drop()
        try:
            if job.error is not None:
                raise job.error
            if self.shared.closing is not None:
                check_continues(job.request, self.shared.closing)
            if exchange.head.call == INFER and exchange.head.accepts_events:
                check_events(<OutputChoice>(<InferInput>job.request).outputs)
        except Exception as error:
            exchange.respond(self.shared.refusal(error, exchange.head))
            return
        try:
            self._submit(exchange, <Runtime>job.runtime, <InferInput>job.request)
        except Exception as error:  # our bug: nobody would answer the request any more
            self.shared.report("a request is lost", error)
            self.connection.give_up()
            return
        self.connection.flush()  # and look at what came behind it

    cdef int _submit(self, Exchange exchange, Runtime runtime, InferInput input) except -1:
        """The one place where requests go to the engine."""
        cdef InferRequest request
        exchange.runtime = runtime
        if self.shared.tracer is not None:
            exchange.trace = self.connection.sample(input)
        if exchange.began_ns:
            exchange.id = input.id
        request = runtime.submit(input, exchange, exchange.trace)
        if not request.done:
            exchange.request = request
        return 0
