"""One HTTP/1.1 client connection: bytes between the socket and an HTTP/1.1 session, answers in order.  Layer 4 (front).

uvloop calls get_buffer, the kernel writes there, buffer_updated says how much.  Heads go through one buffer shared by all
connections; from the moment an inference head is parsed, its body goes straight into a block of the model's arena.
Nothing here waits.  What a client does wrong is the client's to read; logged are requests, when that is asked for.
"""

import logging
from collections import deque

from libc.stdint cimport int64_t, uint64_t

from tisfast.front.body_reader cimport ARENA, NOWHERE, BodyReader
from tisfast.front.exchange cimport Exchange, GenerateExchange, StreamExchange, ConnectionFace
from tisfast.front.listener_context cimport ListenerContext
from tisfast.front.receive_watermark cimport ReceiveWatermark
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.front.transfer_fairness cimport TransferFairness
from tisfast.native.memory cimport BufferView
from tisfast.wire.head cimport GENERATE, GENERATE_STREAM, INFER, NO_CALL, Head
from tisfast.wire.http1 cimport BETWEEN, DATA, END, HEAD, Http1Server
from tisfast.wire.record cimport InferInput

from tisfast import limits, tuning
from tisfast.errors import TisError
from tisfast.front.transfer_fairness import SHARING
from tisfast.native.memory import now_ns
from tisfast.operations.http_response import error_response
from tisfast.telemetry.access_log import HTTP_CLIENT_LEFT
from tisfast.types import Status

cdef object log = logging.getLogger("tisfast.http")

cdef Py_ssize_t PIPELINE_MAX = limits.HTTP_PIPELINE_MAX
cdef int64_t HEAD_TICKS_MAX = limits.HTTP_HEAD_SECONDS_MAX
cdef int64_t BODY_TICKS_MAX = limits.HTTP_BODY_IDLE_SECONDS_MAX
cdef int64_t SEND_TICKS_MAX = limits.HTTP_SEND_IDLE_SECONDS_MAX
cdef int64_t LINGER_TICKS_MAX = limits.HTTP_LINGER_SECONDS_MAX
cdef uint64_t LINGER_BYTES_MAX = limits.HTTP_LINGER_BYTES_MAX
cdef Py_ssize_t CONNECTIONS_MAX = limits.HTTP_CONNECTIONS_MAX
cdef uint64_t WHOLE_BYTES = tuning.TURN_WHOLE_BYTES
cdef TransferFairness sharing = SHARING
cdef uint64_t RECEIVE_BYTES = tuning.RECEIVE_BUFFER_BYTES
cdef int CLIENT_LEFT = HTTP_CLIENT_LEFT
cdef uint64_t CALL_BYTES_MAX = limits.HTTP_CALL_BYTES_MAX
cdef Py_ssize_t RECEIVE_START_BYTES = tuning.RECEIVE_START_BYTES
cdef bytes CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


cdef class HttpConnection(ConnectionFace):
    """An asyncio.BufferedProtocol."""

    def __cinit__(self, ListenerContext shared):
        self.shared = shared
        self.exchanges = deque()
        self.view = BufferView.__new__(BufferView)
        self.session = Http1Server.__new__(Http1Server)
        self.reader = BodyReader(shared, self)
        self.codecs, self.text_bytes_max = shared.codecs, shared.codec_bytes_min

    # ---- what uvloop calls

    def connection_made(self, transport) -> None:
        """Accepted."""
        self.transport = transport
        direct = transport.get_extra_info("sslcontext") is None
        self.sender, self.receiver = SocketWriter(transport, self.shared.loop, direct), ReceiveWatermark(transport, direct)
        self.reader.receiver = self.receiver
        self.touched_tick = self.shared.tick
        self.shared.connections.add(self)
        if len(self.shared.connections) > CONNECTIONS_MAX:
            self.give_up()
            return
        if self.shared.on_made is not None:
            self.shared.on_made()
        if self.shared.draining:  # it was in its TLS handshake, or in the listener's queue, when that began
            self.drain()

    def connection_lost(self, error) -> None:
        """Gone: cancel what the engine still has, let go of all blocks."""
        cdef Exchange exchange
        self.closing = True
        for exchange in self.exchanges:
            exchange.connection = None
            if exchange.began_ns:
                self._note(exchange, CLIENT_LEFT)
            if exchange.job is not None:
                self.codecs.cancel(exchange.job)
            if exchange.trace is not None:
                exchange.trace.finished()
            if exchange.request is not None:
                exchange.runtime.cancel(exchange.request)
        self.exchanges.clear()
        self.sender.drop()
        self.session.drop()
        self.session.rest = None
        self.reader.drop()
        self.shared.connections.discard(self)
        if not self.shared.connections and self.shared.on_empty is not None:
            self.shared.on_empty()

    def eof_received(self):
        """A client that closes its side is gone for us, as for Triton."""
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
        cdef BodyReader reader = self.reader
        if reader.sink == ARENA:
            self.offered = sharing.turn(self.session.left)
            self.view.aim(reader.body.block, reader.place(self.session.left), self.offered, True)
            return self.view if self.sender.fd >= 0 else memoryview(self.view)  # TLS fills it slice by slice
        if self.session.position == BETWEEN and reader.total > RECEIVE_BYTES and self.session.rest is None:
            self.offered = RECEIVE_START_BYTES
            return self.shared.receive_start  # likely one more such body: what comes here is copied once more
        self.offered = RECEIVE_BYTES
        return self.shared.receive if self.sender.fd >= 0 else memoryview(self.shared.receive)

    def buffer_updated(self, Py_ssize_t n) -> None:
        """n bytes are there."""
        cdef bint whole
        self.touched_tick = self.shared.tick
        if self.lingering:
            self.lingered += n
            if self.lingered > LINGER_BYTES_MAX:
                self.transport.abort()
        elif self.reader.sink == ARENA:
            whole = self.session.received(n)
            self.reader.arrived(self.session.left)
            if whole:
                self.view = BufferView.__new__(BufferView)  # the old one would keep the block while the connection is idle
                self.reader.end()
                return
        else:
            if self.session.rest is None:
                self.head_tick = self.shared.tick
            self._process(self.shared.receive_data, n)
        if n == self.offered and self.receiver.had_turn(n):
            self.sender.rest()

    # ---- bytes in

    cdef int _process(self, const unsigned char *data, Py_ssize_t n) except -1:
        """Take as much as may be taken now; the session keeps the rest."""
        cdef bint renewed
        self.parsing = True
        self.session.feed(data, n)
        try:
            self._take()
        finally:
            renewed = self.session.settle()
            self.parsing = False
        if self.reader.sink == ARENA:  # of its body nothing may have come yet
            self.reader.promise_rest(self.session.left)
        if renewed:
            self.head_tick = self.shared.tick
        return self._update_reading()

    cdef int _take(self) except -1:
        cdef Http1Server session = self.session
        cdef bint understanding = True
        cdef int event
        try:  # once for all events, as entering it costs more than an event
            while not self.closing and not self._must_wait():
                event = session.next()
                if event == HEAD:
                    self._on_head()
                    continue
                understanding = False
                if event == DATA:
                    self.reader.add(session.data, session.nbytes, session.left)
                elif event == END:
                    self.reader.end()
                    if session.at == session.end:
                        return 0
                else:
                    return 0
                understanding = True
        except TisError as error:
            if not understanding:  # our bug
                raise
            self.refuse(error_response(error.status, error.message), True)
        return 0

    cdef bint _must_wait(self) noexcept:
        return self.session.position == BETWEEN and (
            self.sender.backlog or self.in_order or self.reader.job is not None or len(self.exchanges) >= PIPELINE_MAX)

    cdef int _parse_rest(self) except -1:
        if self.session.rest is None or self.parsing or self.closing or self._must_wait():
            return 0
        return self._process(NULL, 0)

    cdef int _on_head(self) except -1:
        cdef Http1Server session = self.session
        cdef Head head = session.head
        cdef uint64_t input_max = self.shared.max_input_bytes
        if session.fresh and self.shared.policy is not None:
            self.reader.verdict = self.shared.policy.judge(head)
        self.reader.head = head
        if self.shared.tracer is not None:
            self.received_ns = now_ns()
        if self.shared.access is not None:
            self.began_ns = now_ns()
        if self.shared.verbose:
            log.debug("HTTP request: %s %s", head.method, head.path)
        self.continue_owed = session.continue_owed
        if self.reader.verdict is not None and self.reader.verdict.refusal is not None:
            return self._refuse_unread(self.reader.verdict.refusal)
        if head.call == NO_CALL:
            input_max = min(input_max, CALL_BYTES_MAX)
            if self.shared.gate is not None:
                admission = self.shared.gate.admit(head, self.transport)
                if admission.refusal is not None:
                    return self._refuse_unread(admission.refusal)
                input_max = admission.bytes_max
        if self.continue_owed and not self.exchanges:  # else once the requests before it are answered
            self.continue_owed = False
            self.sender.write(CONTINUE)
        return self.reader.begin(head, input_max)

    # ---- requests

    cdef Exchange open(self):
        cdef Head head = self.reader.head
        cdef Exchange exchange = self._exchange_of(head)
        exchange.connection = self
        exchange.head = head
        exchange.close_after = not head.keep_alive
        if self.shared.access is not None:
            exchange.began_ns, exchange.received_bytes = self.began_ns or now_ns(), self.reader.total
            exchange.noted = head
        self.exchanges.append(exchange)
        if self.reader.total <= WHOLE_BYTES:
            sharing.small_request()
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

    cdef object sample(self, InferInput input):
        trace = self.shared.tracer.sample_http(input.model.name, self.reader.head.raw)
        if trace is not None:
            trace.mark("HTTP_RECV_START", self.received_ns)
            trace.mark("HTTP_RECV_END")
            trace.submitted(input)
        return trace

    # ---- answers

    cdef int _refuse_unread(self, object response) except -1:
        """Answer before the body; whether a client that waits for a 100 Continue sends it after that is its choice."""
        cdef bint close = self.reader.head.chunked or self.continue_owed
        self.continue_owed = False
        return self.refuse(response, close)

    cdef int refuse(self, object response, bint close) except -1:
        cdef Exchange exchange = Exchange.__new__(Exchange)
        cdef Head head = self.session.head
        exchange.connection = self
        exchange.head = head
        exchange.close_after = close or head is None or not head.keep_alive
        exchange.linger = close
        if self.shared.access is not None:
            exchange.began_ns = now_ns() if head is None else self.began_ns or now_ns()
            exchange.noted = head
        if close:  # nothing that still comes is a request, though answers to earlier ones may be outstanding
            self.session.drop()
            self.reader.sink = NOWHERE
            self.view = BufferView.__new__(BufferView)
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
            if self.reader.sink != NOWHERE:
                self.sender.write(CONTINUE)
        try:
            self._parse_rest()
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
            if exchange.began_ns:
                self._note(exchange, self.sender.status)
            self.exchanges.popleft()
            exchange.connection = None
            if exchange.linger:
                self._linger()
            elif exchange.close_after:
                self._close()
        return 0

    cdef int _note(self, Exchange exchange, int status) except -1:
        """Its line of the access log.  Answers are sent one after the other, so what left since the last is its own."""
        cdef Head head = exchange.noted
        method, path = ("-", "-") if head is None else (head.method, head.path)
        model = "" if head is None else head.name or ""
        self.shared.access_log.note(
            method, path, model, status, exchange.began_ns, exchange.received_bytes,
            self.sender.sent_bytes - self.noted_bytes, self.transport.get_extra_info("peername"), exchange.id or "")
        self.noted_bytes = self.sender.sent_bytes
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
        self.lingered = 0
        self.head_tick = self.shared.tick
        self.session.drop()
        self.session.rest = None
        self.sender.write_eof()
        self.sender.hold(False)

    def drain(self) -> None:
        """The server ends, and calls this again and again: what has nothing to say any more goes."""
        if not self.exchanges and self.session.position == BETWEEN and self.session.rest is None \
                and not self.receiver.has_bytes():
            self._close()
        if self.closing and not self.lingering and self.sender.arrived():
            self.transport.abort()  # the client has it all; a TLS client's farewell is not waited for

    def close_if_stalled(self) -> None:
        """Swept each second.  The client owes us bytes in the middle of a head or a body, and the reading of answers."""
        if self.sender.unread_for(self.shared.tick) > SEND_TICKS_MAX:
            self.give_up()
        if self.lingering and self.shared.tick - self.head_tick > LINGER_TICKS_MAX:
            self.transport.abort()
        if self.in_order:
            self.head_tick = self.shared.tick  # what lies there waits for us
        if self.sender.held or self.closing or self.reader.job is not None:
            return
        if self.session.position != BETWEEN:
            if self.shared.tick - self.touched_tick > BODY_TICKS_MAX:
                self.give_up()
            elif self.shared.tick - self.touched_tick > 1:
                self.receiver.await_any()  # what the kernel has collected is a sign of life
        elif self.session.rest is not None and self.shared.tick - self.head_tick > HEAD_TICKS_MAX:
            late = error_response(Status.INVALID_ARG, f"request head not complete after {HEAD_TICKS_MAX} seconds")
            self.refuse(late._replace(status=408), True)

    cdef int _update_reading(self) except -1:
        if self.closing:
            return 0
        # Behind a request that must be read, or done, before the next one buffer is read, so that a client that leaves
        # is noticed.
        return self.sender.hold(self.sender.backlog or len(self.exchanges) >= PIPELINE_MAX or (
            (self.in_order or self.reader.job is not None) and self.session.rest is not None))
