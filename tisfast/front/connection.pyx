"""One HTTP/1.1 client connection: receive into arenas, answer in order.  Layer 4 (front).

uvloop calls get_buffer, the kernel writes there, buffer_updated says how much.  Heads go through one buffer shared by all
connections; from the moment an inference head is parsed, its body goes straight into a block of the model's arena.
Nothing here waits, and nothing logs: what a client does wrong is the client's to read.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from tisfast.front.deliver cimport send_answer, send_response
from tisfast.front.sender cimport Sender
from tisfast.native.region cimport Regions
from tisfast.wire.head cimport Head, head_bytes, parse_head
from tisfast.wire.infer cimport body_start, read_infer
from tisfast.wire.record cimport InferInput
from tisfast.wire.respond cimport Body

from tisfast import limits
from tisfast.errors import TisError, Unavailable
from tisfast.front.response import error_response, too_large
from tisfast.types import Status
from tisfast.wire.compress import decompress

cdef enum:
    HEAD, BLOCK, COLLECT, CHUNKED, DISCARD, CLOSED

cdef Py_ssize_t PIPELINE_MAX = limits.HTTP_PIPELINE_MAX
cdef int64_t HEAD_TICKS_MAX = limits.HTTP_HEAD_SECONDS_MAX
cdef int64_t BODY_TICKS_MAX = limits.HTTP_BODY_IDLE_SECONDS_MAX
cdef int64_t SEND_TICKS_MAX = limits.HTTP_SEND_IDLE_SECONDS_MAX
cdef int64_t LINGER_TICKS_MAX = limits.HTTP_LINGER_SECONDS_MAX
cdef uint64_t LINGER_BYTES_MAX = limits.HTTP_LINGER_BYTES_MAX
cdef Py_ssize_t CONNECTIONS_MAX = limits.HTTP_CONNECTIONS_MAX
cdef uint64_t COLLECT_BYTES_MAX = limits.HTTP_COLLECT_BYTES_MAX
cdef bytes CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


cdef class FrontShared:
    """registry: engine.registry.Registry or None; routes: has handle(head, body) -> Response; loop: uvloop; regions:
    those that clients have registered."""

    def __init__(self, registry, routes, loop, *, uint64_t max_input_bytes, Regions regions=None):
        self.registry = registry
        self.routes = routes
        self.loop = loop
        self.max_input_bytes = max_input_bytes
        self.regions = regions
        self.connections = set()
        self.receive = bytearray(limits.RECEIVE_BUFFER_BYTES)
        self.receive_data = <unsigned char *>self.receive  # never resized, so never moved
        self.body = Body()

    def connect(self) -> HttpConnection:
        """Protocol factory."""
        return HttpConnection(self)

    def sweep(self) -> None:
        """Once a second: close connections whose client stopped in the middle of a request."""
        cdef HttpConnection connection
        self.tick += 1
        for connection in list(self.connections):
            connection._close_if_stalled()

    def begin_drain(self) -> None:
        """From now on every answer closes its connection."""
        self.draining = True
        self.close_idle()

    def close_idle(self) -> None:
        """Close the connections that are between requests."""
        cdef HttpConnection connection
        for connection in list(self.connections):
            if not connection.exchanges and connection.state == HEAD and not connection.pending:
                connection._close()


cdef class Exchange(Reply):
    """The engine's Reply for one HTTP request.  Rendered only when it is sent: answers may come before their turn."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        self.request = None
        if self.connection is None:
            return 0  # the client has gone; dropping the answer gives its block back
        self.answer = answer
        self.done = True
        return self.connection._flush()

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        self.request = None
        if self.connection is None:
            return 0
        return self.respond(error_response(Status(status), message))

    cdef int respond(self, object response) except -1:
        self.response = response
        self.done = True
        return self.connection._flush()


cdef class HttpConnection:
    """An asyncio.BufferedProtocol."""

    def __cinit__(self, FrontShared shared):
        self.shared = shared
        self.exchanges = deque()
        self.view = View.__new__(View)

    # ---- what uvloop calls

    def connection_made(self, transport) -> None:
        """Accepted."""
        self.transport = transport
        self.sender = Sender(transport, transport.get_extra_info("sslcontext") is None)
        self.touched_tick = self.shared.tick
        self.shared.connections.add(self)
        if len(self.shared.connections) > CONNECTIONS_MAX:
            self.closing = True
            transport.abort()

    def connection_lost(self, error) -> None:
        """Gone: cancel what the engine still has, let go of all blocks."""
        cdef Exchange exchange
        self.state = CLOSED
        self.closing = True
        for exchange in self.exchanges:
            exchange.connection = None
            if exchange.request is not None:
                exchange.runtime.cancel(exchange.request)
        self.exchanges.clear()
        self.block = None
        self.pending = None
        self._drop_collected()
        self.shared.connections.discard(self)
        if not self.shared.connections and self.shared.on_empty is not None:
            self.shared.on_empty()

    def eof_received(self):
        """A client that closes its side is gone for us, as for Triton (row 1.32)."""
        return False

    def pause_writing(self) -> None:
        """The kernel took less than we gave: read no further requests meanwhile."""
        self.sender.backlog = True
        self._update_reading()

    def resume_writing(self) -> None:
        """Everything written is with the kernel."""
        self.sender.backlog = False
        self._parse_pending()
        self._update_reading()

    def get_buffer(self, hint):
        """Where the next bytes go."""
        if self.state != BLOCK:
            return self.shared.receive
        self.view.aim(self.block, self.block.data + self.start + self.filled, self.total - self.filled, True)
        return self.view

    def buffer_updated(self, Py_ssize_t n) -> None:
        """n bytes are there."""
        cdef bytes joined
        self.touched_tick = self.shared.tick
        if self.lingering:
            self.filled += n
            if self.filled > LINGER_BYTES_MAX:
                self.transport.abort()
        elif self.state == BLOCK:
            self.filled += n
            if self.filled == self.total:
                self.state = HEAD
                self.view = View.__new__(View)  # the old one would keep the block while the connection is idle
                self._infer()
        elif self.pending is None:
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
        except TisError as error:
            self._refuse(error_response(error.status, error.message), True)
            return n
        self.current = self.head
        self._start_body()
        return size

    cdef bint _is_infer(self) noexcept:
        return self.current.is_infer and self.shared.registry is not None

    cdef int _start_body(self) except -1:
        cdef Head head = self.current
        cdef uint64_t nbytes = max(head.content_length, 0)
        self.continue_owed = head.expect_continue and (nbytes > 0 or head.chunked)
        if self.continue_owed and not self.exchanges:  # else once the requests before it are answered
            self.continue_owed = False
            self.transport.write(CONTINUE)
        self.filled, self.total = 0, nbytes
        if head.chunked:
            self.chunks = ChunkDecoder()
            self.body = bytearray()
            self.state = CHUNKED
        elif self._is_infer() and not head.content_encoding:
            try:
                self._take_block(nbytes)
            except TisError as error:
                self.state = DISCARD if nbytes else HEAD
                return self._refuse(error_response(error.status, error.message), False)
            if nbytes == 0:
                return self._infer()
            self.state = BLOCK
        elif nbytes > self.shared.max_input_bytes:
            self.state = DISCARD
            return self._refuse(too_large(nbytes, self.shared.max_input_bytes), False)
        elif nbytes:
            self.body = bytearray()
            self.state = COLLECT
        else:
            return self._request_complete()
        return 0

    cdef int _take_block(self, uint64_t nbytes) except -1:
        """A block for the body of the current head's model.  Raises TisError."""
        cdef Head head = self.current
        self.runtime = self.shared.registry.resolve(head.name, head.version)
        self.start = body_start(self.runtime.signature.record_room, head.inference_header_length)
        self.block = self.runtime.arena.take(self.start + nbytes)
        self.total = nbytes
        return 0

    cdef Py_ssize_t _on_body(self, const unsigned char *data, Py_ssize_t n) except -2:
        cdef Py_ssize_t used
        if self.state == CHUNKED:
            return self._on_chunks(data, n)
        used = <Py_ssize_t>min(<uint64_t>n, self.total - self.filled)
        if self.state == BLOCK:
            memcpy(self.block.data + self.start + self.filled, data, used)
        elif self.state == COLLECT:
            self.body.extend(data[:used])
        self.filled += used
        if self.filled < self.total:
            return used
        state, self.state = self.state, HEAD
        if state == BLOCK:
            self._infer()
        elif state == COLLECT:
            self._request_complete()
        return used

    cdef Py_ssize_t _on_chunks(self, const unsigned char *data, Py_ssize_t n) except -2:
        cdef Py_ssize_t used
        try:
            used = self.chunks.feed(data, n, self.body, self._collect_max())
            self._count_collected(<uint64_t>len(self.body))
        except TisError as error:
            self._drop_collected()
            self._refuse(error_response(error.status, error.message), True)
            return n
        if self.chunks.done:
            self.state = HEAD
            self.chunks = None
            self._request_complete()
        return used

    cdef uint64_t _collect_max(self):
        """Most bytes of a body of unknown length: an inference may carry binary tensors beyond the JSON limit."""
        if self._is_infer() and not self.current.content_encoding:
            return max(self.shared.max_input_bytes, <uint64_t>limits.HTTP_CHUNKED_BODY_BYTES_MAX)
        return self.shared.max_input_bytes

    cdef int _count_collected(self, uint64_t nbytes) except -1:
        """Bodies outside arenas are bounded over all connections, too.  Raises Unavailable."""
        self.shared.collected += nbytes - self.collected
        self.collected = nbytes
        if self.shared.collected > COLLECT_BYTES_MAX:
            raise Unavailable(
                f"requests that are being received in chunks exceed {COLLECT_BYTES_MAX} bytes together; retry later, or "
                "send a Content-Length")
        return 0

    cdef object _drop_collected(self):
        """Take the collected body, which no longer counts from here on."""
        body, self.body = self.body, None
        self.shared.collected -= self.collected
        self.collected = 0
        return body

    # ---- requests

    cdef int _request_complete(self) except -1:
        """A request whose body was collected outside an arena, or that has none."""
        cdef Head head = self.current
        body = self._drop_collected()
        try:
            data = bytes(body) if body is not None else b""
            if head.content_encoding:
                data = decompress(head.content_encoding, data, self.shared.max_input_bytes)
            if self._is_infer():
                self._take_block(len(data))
                memcpy(self.block.data + self.start, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
                return self._infer()
        except TisError as error:
            return self._refuse(error_response(error.status, error.message), False)
        exchange = self._open()
        try:
            response = self.shared.routes.handle(head, data)
        except Exception as error:  # our bug: answered, reported once, and the server goes on
            self.shared.loop.call_exception_handler({"message": f"{head.method} {head.path} failed", "exception": error})
            response = error_response(Status.INTERNAL, f"unexpected {type(error).__name__} in the server; see its log")
        return exchange.respond(response)

    cdef int _infer(self) except -1:
        """The body is in the block: parse it and queue the request."""
        cdef Exchange exchange = self._open()
        cdef Block block = self.block
        cdef InferInput input
        cdef InferRequest request
        self.block = None
        try:
            input = read_infer(
                self.runtime.signature, self.runtime.arena, block, self.start, self.total,
                self.current.inference_header_length, self.shared.max_input_bytes, self.shared.regions)
        except TisError as error:
            return exchange.respond(error_response(error.status, error.message))
        exchange.runtime = self.runtime
        request = self.runtime.submit(input, exchange)
        if not exchange.done:
            exchange.request = request
        return 0

    cdef Exchange _open(self):
        cdef Exchange exchange = Exchange.__new__(Exchange)
        exchange.connection = self
        exchange.head = self.current
        exchange.close_after = not self.current.keep_alive
        self.exchanges.append(exchange)
        return exchange

    # ---- answers

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

    cdef int _flush(self) except -1:
        """Send what is answered, in order; then parse what waited for that."""
        cdef Exchange exchange
        while self.exchanges and (<Exchange>self.exchanges[0]).done and not self.closing:
            exchange = <Exchange>self.exchanges.popleft()
            exchange.connection = None
            exchange.close_after = exchange.close_after or self.shared.draining
            if exchange.answer is not None:
                send_answer(self.sender, self.shared.body, exchange.answer, exchange.head, exchange.close_after)
            else:
                send_response(self.sender, exchange.response, exchange.head, exchange.close_after)
            if exchange.linger:
                self._linger()
            elif exchange.close_after:
                self._close()
        if self.continue_owed and not self.exchanges and not self.closing:
            self.continue_owed = False
            if self.state != HEAD and self.state != DISCARD:
                self.transport.write(CONTINUE)
        self._parse_pending()
        return self._update_reading()

    def _close(self) -> None:
        """After what is being written: nothing more is read."""
        if not self.closing:
            self.closing = True
            self.transport.close()

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
        if self.paused:
            self.transport.resume_reading()

    def _close_if_stalled(self) -> None:
        """Swept each second.  The client owes us bytes in the middle of a head or a body, and the reading of answers."""
        cdef Py_ssize_t unsent = self.transport.get_write_buffer_size() if self.sender.backlog else 0
        if unsent == 0 or unsent != self.unsent:
            self.unsent = unsent
            self.sent_tick = self.shared.tick
        elif self.shared.tick - self.sent_tick > SEND_TICKS_MAX:
            self.closing = True
            self.transport.abort()
        if self.lingering and self.shared.tick - self.head_tick > LINGER_TICKS_MAX:
            self.transport.abort()
        if self.paused or self.closing:
            return
        if self.state != HEAD:
            if self.shared.tick - self.touched_tick > BODY_TICKS_MAX:
                self.closing = True
                self.transport.abort()
        elif self.pending is not None and self.shared.tick - self.head_tick > HEAD_TICKS_MAX:
            late = error_response(Status.INVALID_ARG, f"request head not complete after {HEAD_TICKS_MAX} seconds")
            self._refuse(late._replace(status=408), True)

    cdef int _update_reading(self) except -1:
        cdef bint pause = self.sender.backlog or len(self.exchanges) >= PIPELINE_MAX
        if pause != self.paused and not self.closing:
            self.paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        return 0
