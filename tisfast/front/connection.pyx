"""One HTTP/1.1 client connection: receive into arenas, answer in order.  Layer 4 (front).

uvloop calls get_buffer, the kernel writes there, buffer_updated says how much.  Heads go through one buffer shared by all
connections; from the moment an inference head is parsed, its body goes straight into a block of the model's arena.
Nothing here waits.  What a client does wrong is the client's to read; logged are requests, when that is asked for.
"""

import logging
from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from tisfast.front.collector cimport Collector
from tisfast.front.exchange cimport Exchange, GenerateExchange, StreamExchange, Turns, check_events
from tisfast.front.receiver cimport Receiver
from tisfast.front.sender cimport Sender
from tisfast.front.shared cimport FrontShared
from tisfast.engine.core cimport InferRequest
from tisfast.engine.served cimport Runtime
from tisfast.wire.generate cimport read_generate
from tisfast.wire.head cimport GENERATE, GENERATE_STREAM, INFER, NO_CALL, Head, head_bytes, parse_head
from tisfast.wire.infer cimport body_start, read_infer
from tisfast.wire.plan cimport OutputChoice
from tisfast.wire.record cimport InferInput

from tisfast import limits
from tisfast.errors import BadRequest, TisError, Unsupported
from tisfast.front.response import error_response, too_large
from tisfast.native.memory import now_ns
from tisfast.types import Status
from tisfast.wire.compress import decompress

cdef object log = logging.getLogger("tisfast.http")

cdef enum:
    HEAD, BLOCK, COLLECT, DISCARD, CLOSED

cdef Py_ssize_t PIPELINE_MAX = limits.HTTP_PIPELINE_MAX
cdef int64_t HEAD_TICKS_MAX = limits.HTTP_HEAD_SECONDS_MAX
cdef int64_t BODY_TICKS_MAX = limits.HTTP_BODY_IDLE_SECONDS_MAX
cdef int64_t SEND_TICKS_MAX = limits.HTTP_SEND_IDLE_SECONDS_MAX
cdef int64_t LINGER_TICKS_MAX = limits.HTTP_LINGER_SECONDS_MAX
cdef uint64_t LINGER_BYTES_MAX = limits.HTTP_LINGER_BYTES_MAX
cdef Py_ssize_t CONNECTIONS_MAX = limits.HTTP_CONNECTIONS_MAX
cdef uint64_t RECEIVE_BYTES = limits.RECEIVE_BUFFER_BYTES
cdef bytes CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


cdef class HttpConnection(Turns):
    """An asyncio.BufferedProtocol."""

    def __cinit__(self, FrontShared shared):
        self.shared = shared
        self.exchanges = deque()
        self.view = View.__new__(View)
        self.collector = Collector(shared)

    # ---- what uvloop calls

    def connection_made(self, transport) -> None:
        """Accepted."""
        self.transport = transport
        direct = transport.get_extra_info("sslcontext") is None
        self.sender, self.receiver = Sender(transport, direct), Receiver(transport, direct)
        self.touched_tick = self.shared.tick
        self.shared.connections.add(self)
        if len(self.shared.connections) > CONNECTIONS_MAX:
            self.give_up()
            return
        if self.shared.on_made is not None:
            self.shared.on_made()
        if self.shared.draining:  # it was in its TLS handshake when that began
            self._close()

    def connection_lost(self, error) -> None:
        """Gone: cancel what the engine still has, let go of all blocks."""
        cdef Exchange exchange
        self.state = CLOSED
        self.closing = True
        for exchange in self.exchanges:
            exchange.connection = None
            if exchange.trace is not None:
                exchange.trace.finished()
            if exchange.request is not None:
                exchange.runtime.cancel(exchange.request)
        self.exchanges.clear()
        self.sender.drop()
        self.block = None
        self.runtime = None
        self.pending = None
        self.collector.drop()
        self.shared.connections.discard(self)
        if not self.shared.connections and self.shared.on_empty is not None:
            self.shared.on_empty()

    def eof_received(self):
        """A client that closes its side is gone for us, as for Triton (row 1.32)."""
        return False

    def pause_writing(self) -> None:
        """The kernel took less than we gave: read no further requests meanwhile."""
        if self.sender is None:  # while it is made: a TLS transport may still hold bytes of its handshake
            return
        self.sender.pause()
        self._update_reading()

    def resume_writing(self) -> None:
        """Everything written is with the kernel."""
        if self.sender is None:
            return
        self.sender.resume()
        if not self.sender.backlog:
            self.flush()

    def get_buffer(self, hint):
        """Where the next bytes go."""
        if self.state == HEAD and self.total > RECEIVE_BYTES and self.pending is None:
            return self.shared.receive_start  # likely one more such body: what comes here is copied once more
        if self.state != BLOCK:
            return self.shared.receive if self.sender.fd >= 0 else memoryview(self.shared.receive)
        self.view.aim(self.block, self.block.data + self.start + self.filled, self.total - self.filled, True)
        return self.view if self.sender.fd >= 0 else memoryview(self.view)  # TLS fills it slice by slice

    def buffer_updated(self, Py_ssize_t n) -> None:
        """n bytes are there."""
        self.touched_tick = self.shared.tick
        if self.lingering:
            self.filled += n
            if self.filled > LINGER_BYTES_MAX:
                self.transport.abort()
        elif self.state == BLOCK:
            if self._fill_block(n):
                self.view = View.__new__(View)  # the old one would keep the block while the connection is idle
                self._infer()
        elif self.pending is None:
            self.head_tick = self.shared.tick
            self._process(self.shared.receive_data, n)
        else:
            joined = self.pending + self.shared.receive_data[:n]
            self.pending = None
            self._process(<const unsigned char *>PyBytes_AS_STRING(joined), PyBytes_GET_SIZE(joined))

    # ---- bytes in

    cdef int _process(self, const unsigned char *data, Py_ssize_t n) except -1:
        """Parse as much as may be parsed now; keep the rest."""
        cdef Py_ssize_t at = 0, used
        self.parsing = True
        try:
            while at < n and not self.closing and not self._must_wait():
                if self.state == HEAD:
                    used = self._on_head(data + at, n - at)
                    if used == 0:
                        break
                else:
                    used = self._on_body(data + at, n - at)
                at += used
        finally:
            self.parsing = False
        if at < n and not self.closing:
            self.pending = data[at:n]
            if at > 0:
                self.head_tick = self.shared.tick
        return self._update_reading()

    cdef bint _must_wait(self) noexcept:
        return self.state == HEAD and (self.sender.backlog or len(self.exchanges) >= PIPELINE_MAX)

    cdef int _parse_pending(self) except -1:
        cdef bytes data = self.pending
        if data is None or self.parsing or self.closing or self._must_wait():
            return 0
        self.pending = None
        return self._process(<const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef Py_ssize_t _on_head(self, const unsigned char *data, Py_ssize_t n) except -2:
        """Returns bytes consumed; 0: the head is not complete."""
        cdef Py_ssize_t size
        if data[0] == 13 or data[0] == 10:  # empty lines before a request are to be ignored (RFC 9112, 2.2)
            return 1
        try:
            size = head_bytes(data, n, self.searched)
            self.searched = 0 if size else n
            if size == 0:
                return 0
            if self.head is None or PyBytes_GET_SIZE(self.head.raw) != size \
                    or memcmp(PyBytes_AS_STRING(self.head.raw), data, size) != 0:
                self.head = None
                self.head = parse_head(data[:size])
                if self.shared.policy is not None:
                    self.verdict = self.shared.policy.judge(self.head)
        except TisError as error:
            self._refuse(error_response(error.status, error.message), True)
            return n
        self.current = self.head
        if self.shared.tracer is not None:
            self.received_ns = now_ns()
        if self.shared.verbose:
            log.debug("HTTP request: %s %s", self.head.method, self.head.path)
        self._start_body()
        return size

    cdef bint _is_infer(self) noexcept:
        return self.current.is_infer and self.shared.registry is not None

    cdef int _start_body(self) except -1:
        cdef Head head = self.current
        cdef uint64_t nbytes = max(head.content_length, 0)
        self.continue_owed = head.expect_continue and (nbytes > 0 or head.chunked)
        if self.verdict is not None and self.verdict.refusal is not None:
            return self._refuse_unread(self.verdict.refusal)
        self.input_max = self.shared.max_input_bytes
        if head.call == NO_CALL and self.shared.gate is not None:
            admission = self.shared.gate.admit(head, self.transport)
            if admission.refusal is not None:
                return self._refuse_unread(admission.refusal)
            self.input_max = admission.bytes_max
        if self.continue_owed and not self.exchanges:  # else once the requests before it are answered
            self.continue_owed = False
            self.sender.write(CONTINUE)
        self.filled, self.total = 0, nbytes
        if head.chunked:
            self.collector.begin(self._collect_max(), True)
            self.state = COLLECT
        elif self._is_infer() and not head.content_encoding:
            try:
                self._take_block(nbytes)
            except TisError as error:
                self.state = DISCARD if nbytes else HEAD
                return self._refuse(error_response(error.status, error.message), False)
            if nbytes == 0:
                return self._infer()
            self.state = BLOCK
        elif nbytes > self.input_max:
            self.state = DISCARD
            return self._refuse(too_large(nbytes, self.input_max), False)
        elif nbytes:
            self.collector.begin(nbytes, False)
            self.state = COLLECT
        else:
            return self._request_complete()
        return 0

    cdef int _take_block(self, uint64_t nbytes) except -1:
        """A block for the body of the current head's model.  Raises TisError."""
        cdef Head head = self.current
        cdef Runtime runtime = self.shared.registry.resolve(head.name, head.version)
        if runtime.signature.decoupled and not head.accepts_events:
            raise Unsupported(
                "HTTP end point doesn't support models with decoupled transaction policy; ask with Accept: "
                "text/event-stream, which streams the responses, or use generate_stream")
        self.start = body_start(runtime.signature.record_room, head.inference_header_length)
        self.block = runtime.arena.take(self.start + nbytes)
        self.runtime = runtime
        self.total = nbytes
        return 0

    cdef Py_ssize_t _on_body(self, const unsigned char *data, Py_ssize_t n) except -2:
        cdef Py_ssize_t used
        if self.state == COLLECT:
            return self._on_collected(data, n)
        used = <Py_ssize_t>min(<uint64_t>n, self.total - self.filled)
        if self.state == BLOCK:
            memcpy(self.block.data + self.start + self.filled, data, used)
            if self._fill_block(used):
                self._infer()
            return used
        self.filled += used
        if self.filled == self.total:
            self.state = HEAD
        return used

    cdef bint _fill_block(self, Py_ssize_t n) except -1:
        """n more bytes of a body lie in its block.  True: these were the last, and a head is next."""
        cdef uint64_t missing
        self.filled += n
        missing = self.total - self.filled
        self.receiver.await_body(missing)
        if missing:
            self.runtime.expect(missing)
        else:
            self.state = HEAD
        return missing == 0

    cdef Py_ssize_t _on_collected(self, const unsigned char *data, Py_ssize_t n) except -2:
        cdef Py_ssize_t used
        try:
            used = self.collector.feed(data, n)
        except TisError as error:
            self._refuse(error_response(error.status, error.message), True)
            return n
        if self.collector.whole():
            self.state = HEAD
            self._request_complete()
        return used

    cdef uint64_t _collect_max(self):
        """Most bytes of a body of unknown length: an inference may carry binary tensors beyond the JSON limit."""
        if self._is_infer() and not self.current.content_encoding:
            return max(self.shared.max_input_bytes, <uint64_t>limits.HTTP_CHUNKED_BODY_BYTES_MAX)
        return self.input_max

    # ---- requests

    cdef int _request_complete(self) except -1:
        """A request whose body was collected outside an arena, or that has none."""
        cdef Head head = self.current
        cdef bytes data = self.collector.take()
        try:
            if head.call >= GENERATE and self.shared.registry is not None:
                return self._generate(data)
            if head.content_encoding:
                data = decompress(head.content_encoding, data, self.input_max)
            if self._is_infer():
                self._take_block(len(data))
                memcpy(self.block.data + self.start, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
                return self._infer()
        except TisError as error:
            return self._refuse(error_response(error.status, error.message), False)
        exchange = self._open()
        return exchange.respond_when_done(self.shared.handle(head, data))

    cdef int _infer(self) except -1:
        """The body is in the block: parse it and queue the request."""
        cdef Exchange exchange = self._open()
        cdef Runtime runtime = self.runtime
        cdef Block block = self.block
        cdef InferInput input
        self.runtime = None  # an idle connection must not keep the memory of a model that is unloaded
        self.block = None
        try:
            input = read_infer(
                runtime.signature, runtime.arena, block, self.start, self.total,
                self.current.inference_header_length, self.shared.max_input_bytes, self.shared.regions,
                b"" if self.verdict is None else self.verdict.forwarded)
            if self.current.accepts_events:
                check_events(<OutputChoice>input.outputs)
        except Exception as error:
            return exchange.respond(self.shared.refusal(error, self.current))
        return self._submit(exchange, runtime, input)

    cdef int _generate(self, bytes text) except -1:
        """A generate request, whose body is JSON and nothing else."""
        cdef Exchange exchange = self._open()
        cdef Head head = self.current
        cdef Runtime runtime
        cdef InferInput input
        try:
            if head.content_encoding:
                raise BadRequest("Unsupported content-encoding, only 'identity' is supported.")
            runtime = self.shared.registry.resolve(head.name, head.version)
            input = read_generate(runtime.signature, runtime.arena, text, self.shared.max_input_bytes)
        except Exception as error:
            return exchange.respond(self.shared.refusal(error, head))
        return self._submit(exchange, runtime, input)

    cdef int _submit(self, Exchange exchange, Runtime runtime, InferInput input) except -1:
        """The one place where requests go to the engine."""
        cdef InferRequest request
        exchange.runtime = runtime
        if self.shared.tracer is not None:
            exchange.trace = self._sample(input)
        self.shared.cores.seen(self.sender.fd, runtime, self.total)
        request = runtime.submit(input, exchange, exchange.trace)
        if not request.done:
            exchange.request = request
        return 0

    cdef object _sample(self, InferInput input):
        """A trace of the current request, if it is to be traced."""
        trace = self.shared.tracer.sample_http(input.model.name, self.current.raw)
        if trace is not None:
            trace.mark("HTTP_RECV_START", self.received_ns)
            trace.mark("HTTP_RECV_END")
            trace.submitted(input)
        return trace

    cdef Exchange _open(self):
        cdef Exchange exchange = self._exchange_of(self.current)
        exchange.connection = self
        exchange.head = self.current
        exchange.close_after = not self.current.keep_alive
        self.exchanges.append(exchange)
        return exchange

    cdef Exchange _exchange_of(self, Head head):
        cdef StreamExchange stream
        if head.call == INFER and not head.accepts_events or head.call == NO_CALL or self.shared.registry is None:
            return Exchange.__new__(Exchange)
        if head.call == GENERATE:
            return GenerateExchange.__new__(GenerateExchange)
        stream = StreamExchange.__new__(StreamExchange)
        stream.generate = head.call == GENERATE_STREAM
        return stream

    # ---- answers

    cdef int _refuse_unread(self, object response) except -1:
        """Answer before the body; whether a client that waits for a 100 Continue sends it after that is its choice."""
        cdef bint close = self.current.chunked or self.continue_owed
        self.continue_owed = False
        self.filled, self.total = 0, max(self.current.content_length, 0)
        self.state = DISCARD if self.total else HEAD
        return self._refuse(response, close)

    cdef int _refuse(self, object response, bint close) except -1:
        """Answer a request that never became one; `close` when what follows cannot be told from its body."""
        cdef Exchange exchange = Exchange.__new__(Exchange)
        exchange.connection = self
        exchange.head = self.current
        exchange.close_after = close or self.current is None or not self.current.keep_alive
        exchange.linger = close
        if close:  # nothing that still comes is a request, though answers to earlier ones may be outstanding
            self.state = DISCARD
            self.filled, self.total = 0, UINT64_MAX
        self.exchanges.append(exchange)
        return exchange.respond(response)

    cdef int flush(self) except -1:
        """Send what is answered, in order; then parse what waited for that."""
        if not self.flushing:  # TLS pauses and resumes us within a write
            self.flushing = True
            try:
                self._send_ready()
            except Exception as error:
                self.shared.report("answers to a connection are lost", error)
                return self.give_up()
            finally:
                self.flushing = False
        if self.continue_owed and not self.exchanges and not self.closing:
            self.continue_owed = False
            if self.state != HEAD and self.state != DISCARD:
                self.sender.write(CONTINUE)
        try:
            self._parse_pending()
        except Exception as error:  # our bug: it must not go on into whoever answered
            self.shared.report("requests of a connection are lost", error)
            return self.give_up()
        return self._update_reading()

    cdef int _send_ready(self) except -1:
        cdef Exchange exchange
        while self.exchanges and (<Exchange>self.exchanges[0]).ready and not self.closing:
            exchange = <Exchange>self.exchanges[0]
            exchange.close_after = exchange.close_after or self.shared.draining
            if exchange.trace is not None:
                exchange.trace.mark("HTTP_SEND_START")
            if not exchange.send(self.sender, self.shared.body):
                break
            if exchange.trace is not None:
                exchange.trace.mark("HTTP_SEND_END")
                exchange.trace.finished()
            self.exchanges.popleft()
            exchange.connection = None
            if exchange.linger:
                self._linger()
            elif exchange.close_after:
                self._close()
        return 0

    cdef int give_up(self) except -1:
        self.closing = True
        self.transport.abort()
        return 0

    def _close(self) -> None:
        """After what is being written: nothing more is read."""
        if not self.closing:
            self.closing = True
            self.sender.close()

    def _linger(self) -> None:
        """Close our side, and drop what the client still sends: closing at once would make the kernel reset the
        connection, and the reset may overtake the answer that says why."""
        if self.closing or not self.transport.can_write_eof():
            return self._close()
        self.closing = self.lingering = True
        self.filled = 0
        self.head_tick = self.shared.tick
        self.pending = None
        self.transport.write_eof()
        self.sender.hold(False)

    def drain(self) -> None:
        """The server ends, and calls this again and again: what has nothing to say any more goes."""
        if not self.exchanges and self.state == HEAD and not self.pending:
            self._close()
        if self.closing and not self.lingering and self.sender.arrived():
            self.transport.abort()  # the client has it all; a TLS client's farewell is not waited for

    def close_if_stalled(self) -> None:
        """Swept each second.  The client owes us bytes in the middle of a head or a body, and the reading of answers."""
        if self.sender.unread_for(self.shared.tick) > SEND_TICKS_MAX:
            self.give_up()
        if self.lingering and self.shared.tick - self.head_tick > LINGER_TICKS_MAX:
            self.transport.abort()
        if self.sender.held or self.closing:
            return
        if self.state != HEAD:
            if self.shared.tick - self.touched_tick > BODY_TICKS_MAX:
                self.give_up()
            elif self.shared.tick - self.touched_tick > 1:
                self.receiver.await_any()  # what the kernel has collected is a sign of life
        elif self.pending is not None and self.shared.tick - self.head_tick > HEAD_TICKS_MAX:
            late = error_response(Status.INVALID_ARG, f"request head not complete after {HEAD_TICKS_MAX} seconds")
            self._refuse(late._replace(status=408), True)

    cdef int _update_reading(self) except -1:
        return 0 if self.closing else self.sender.hold(self.sender.backlog or len(self.exchanges) >= PIPELINE_MAX)
