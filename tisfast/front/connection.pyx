"""One HTTP/1.1 client connection: receive into arenas, answer in order.  Layer 4 (front).

uvloop calls get_buffer, the kernel writes there, buffer_updated says how much.  Heads go through one buffer shared by all
connections; from the moment an inference head is parsed, its body goes straight into a block of the model's arena.
Nothing here waits, and nothing logs: what a client does wrong is the client's to read.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from tisfast.front.sender cimport Sender
from tisfast.wire.head cimport Head, parse_head
from tisfast.wire.infer cimport parse_infer
from tisfast.wire.record cimport InferInput
from tisfast.wire.respond cimport render_answer

from tisfast import limits
from tisfast.errors import BadRequest, TisError
from tisfast.front.routes import error_response
from tisfast.types import Status
from tisfast.wire.compress import choose, compress, decompress

cdef extern from "<string.h>":
    void *memmem(const void *haystack, size_t n, const void *needle, size_t m) nogil

cdef enum:
    HEAD, BLOCK, COLLECT, CHUNKED, DISCARD, CLOSED

cdef Py_ssize_t HEAD_BYTES_MAX = limits.HTTP_HEAD_BYTES_MAX
cdef int64_t BODY_BYTES_MAX = limits.HTTP_BODY_BYTES_MAX
cdef Py_ssize_t PIPELINE_MAX = limits.HTTP_PIPELINE_MAX
cdef int64_t HEAD_TICKS_MAX = limits.HTTP_HEAD_SECONDS_MAX
cdef int64_t BODY_TICKS_MAX = limits.HTTP_BODY_IDLE_SECONDS_MAX
cdef Py_ssize_t CONNECTIONS_MAX = limits.HTTP_CONNECTIONS_MAX

cdef dict REASONS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 413: "Content Too Large", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}


cdef class FrontShared:
    """registry: engine.registry.Registry or None; routes: has handle(head, body) -> Response; loop: uvloop."""

    def __init__(self, registry, routes, loop, *, uint64_t max_input_bytes):
        self.registry = registry
        self.routes = routes
        self.loop = loop
        self.max_input_bytes = max_input_bytes
        self.connections = set()
        self.receive = bytearray(limits.RECEIVE_BUFFER_BYTES)
        self.receive_data = <unsigned char *>self.receive  # never resized, so never moved
        self.receive_bytes = limits.RECEIVE_BUFFER_BYTES

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
    """The engine's Reply for one HTTP request."""

    cdef int answered(self, InferRequest request, Answer answer) except -1:
        cdef bytes json
        cdef int64_t header_length
        cdef uint64_t total
        self.request = None
        if self.connection is None:
            return 0  # the client has gone; dropping the answer gives its block back
        try:
            json, header_length, tensors, total = render_answer(answer)
        except TisError as error:
            return self.connection._answer_plain(self, error_response(error.status, error.message))
        encoding = choose(self.head.accept_encoding) if self.head.accept_encoding else ""
        extra = b""
        if encoding:
            json, tensors = compress(encoding, b"".join([json, *tensors])), []
            total = len(json)
            extra = b"Content-Encoding: %b\r\n" % encoding.encode()
        if header_length < 0:
            return self.answer(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + extra, json, tensors, total)
        return self.answer(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n%b"
            b"Inference-Header-Content-Length: %d\r\n" % (extra, header_length), json, tensors, total)

    cdef int failed(self, InferRequest request, int status, str message) except -1:
        self.request = None
        if self.connection is None:
            return 0
        return self.connection._answer_plain(self, error_response(Status(status), message))

    cdef int answer(self, bytes status_line, bytes body, list tensors, uint64_t body_bytes) except -1:
        self.status_line = status_line
        self.body = body
        self.tensors = tensors
        self.body_bytes = body_bytes
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
        self.body = self.pending = None
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
        return self.view if self.state == BLOCK else self.shared.receive

    def buffer_updated(self, Py_ssize_t n) -> None:
        """n bytes are there."""
        cdef bytes joined
        self.touched_tick = self.shared.tick
        if self.state == BLOCK:
            self.filled += n
            if self.filled < self.total:
                self._aim()
            else:
                self.state = HEAD
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
        cdef const unsigned char *end
        if data[0] == 13 or data[0] == 10:  # empty lines before a request are to be ignored (RFC 9112, 2.2)
            return 1
        end = <const unsigned char *>memmem(data, min(n, HEAD_BYTES_MAX), b"\r\n\r\n", 4)
        if end == NULL:
            if n >= HEAD_BYTES_MAX:
                self._refuse_with(431, f"request head exceeds {HEAD_BYTES_MAX} bytes")
                return n
            return 0
        size = end - data + 4
        if self.head is None or PyBytes_GET_SIZE(self.head.raw) != size \
                or memcmp(PyBytes_AS_STRING(self.head.raw), data, size) != 0:
            try:
                self.head = parse_head(data[:size])
            except TisError as error:
                self.head = None
                self._refuse(error, True)
                return n
        self.current = self.head
        self._start_body()
        return size

    cdef int _start_body(self) except -1:
        cdef Head head = self.current
        cdef uint64_t nbytes = max(head.content_length, 0)
        if head.content_length > BODY_BYTES_MAX:
            return self._refuse(BadRequest(f"Content-Length {head.content_length} exceeds {BODY_BYTES_MAX}"), True)
        if head.expect_continue and (nbytes or head.chunked) and not self.exchanges:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.filled, self.total = 0, nbytes
        if head.chunked:
            self.chunks = ChunkDecoder()
            self.body = bytearray()
            self.state = CHUNKED
        elif head.is_infer and self.shared.registry is not None and not head.content_encoding:
            try:
                self._take_block(nbytes)
            except TisError as error:
                self.state = DISCARD if nbytes else HEAD
                return self._refuse(error, False)
            if nbytes == 0:
                return self._infer()
            self.state = BLOCK
            self._aim()
        elif nbytes > self.shared.max_input_bytes:
            self.state = DISCARD
            return self._refuse(self._too_large(nbytes), False)
        elif nbytes:
            self.body = bytearray()
            self.state = COLLECT
        else:
            return self._request_complete()
        return 0

    cdef object _too_large(self, nbytes):
        return BadRequest(
            f"Request body size {nbytes} exceeds the limit of {self.shared.max_input_bytes} bytes; "
            "use --http-max-input-size to increase it")

    cdef int _take_block(self, uint64_t nbytes) except -1:
        """A block for the body of the current head's model.  Raises TisError."""
        self.runtime = self.shared.registry.resolve(self.current.name, self.current.version)
        # The first binary tensor, behind the JSON, is to lie on a cache line: vector code and foreign libraries want that.
        self.start = -<uint64_t>max(self.current.inference_header_length, 0) % 64
        self.block = self.runtime.arena.take(self.start + nbytes + 8 + self.runtime.signature.record_room)
        self.total = nbytes
        return 0

    cdef int _aim(self) except -1:
        return self.view.aim(
            self.block, self.block.data + self.start + self.filled, self.total - self.filled, True)

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
            if self.state == BLOCK:
                self._aim()
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
        except TisError as error:
            self._refuse(error, True)
            return n
        if self.chunks.done:
            self.state = HEAD
            self.chunks = None
            self._request_complete()
        return used

    cdef uint64_t _collect_max(self):
        """Most bytes of a body of unknown length: an inference may carry binary tensors beyond the JSON limit."""
        if self.current.is_infer and self.shared.registry is not None and not self.current.content_encoding:
            return max(self.shared.max_input_bytes, <uint64_t>limits.HTTP_CHUNKED_BODY_BYTES_MAX)
        return self.shared.max_input_bytes

    # ---- requests

    cdef int _request_complete(self) except -1:
        """A request whose body was collected outside an arena, or that has none."""
        cdef Head head = self.current
        body, self.body = self.body, None
        try:
            data = bytes(body) if body is not None else b""
            if head.content_encoding:
                data = decompress(head.content_encoding, data, self.shared.max_input_bytes)
            if head.is_infer and self.shared.registry is not None:
                self._take_block(len(data))
                memcpy(self.block.data + self.start, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
                return self._infer()
        except TisError as error:
            return self._refuse(error, False)
        exchange = self._open()
        try:
            response = self.shared.routes.handle(head, data)
        except Exception as error:  # our bug: answered, reported once, and the server goes on
            self.shared.loop.call_exception_handler({"message": f"{head.method} {head.path} failed", "exception": error})
            response = error_response(Status.INTERNAL, f"unexpected {type(error).__name__} in the server; see its log")
        return self._answer_plain(exchange, response)

    cdef int _infer(self) except -1:
        """The body is in the block: parse it and queue the request."""
        cdef Exchange exchange = self._open()
        cdef Block block = self.block
        cdef InferInput input
        cdef InferRequest request
        self.block = None
        try:
            input = parse_infer(
                self.runtime.signature, self.runtime.arena, block, block.data + self.start, self.total,
                self.current.inference_header_length, self.shared.max_input_bytes)
        except TisError as error:
            return self._answer_plain(exchange, error_response(error.status, error.message))
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

    cdef int _answer_plain(self, Exchange exchange, object response) except -1:
        """Answer with a whole Response of routes.py."""
        cdef bytes body = response.body
        line = f"HTTP/1.1 {response.status} {REASONS.get(response.status, 'Error')}\r\n"
        if response.content_type:
            line += f"Content-Type: {response.content_type}\r\n"
        for name, value in response.headers:
            line += f"{name}: {value}\r\n"
        return exchange.answer(line.encode("latin-1", "replace"), body, None, len(body))

    cdef int _refuse(self, object error, bint close) except -1:
        """Answer a request that never became one; `close` when what follows cannot be told from its body."""
        cdef Exchange exchange = Exchange.__new__(Exchange)
        exchange.connection = self
        exchange.head = self.current
        exchange.close_after = close or self.current is None or not self.current.keep_alive
        self.exchanges.append(exchange)
        return self._answer_plain(exchange, error_response(error.status, error.message))

    cdef int _refuse_with(self, int http_status, str message) except -1:
        """The same where HTTP has a status of its own and Triton none."""
        cdef Exchange exchange = Exchange.__new__(Exchange)
        exchange.connection = self
        exchange.close_after = True
        self.exchanges.append(exchange)
        response = error_response(Status.INVALID_ARG, message)
        return self._answer_plain(exchange, response._replace(status=http_status))

    cdef int _flush(self) except -1:
        """Send what is answered, in order; then parse what waited for that."""
        cdef Exchange exchange
        while self.exchanges and (<Exchange>self.exchanges[0]).done and not self.closing:
            exchange = <Exchange>self.exchanges.popleft()
            exchange.connection = None
            self._send(exchange)
            if exchange.close_after or self.shared.draining:
                self._close()
        self._parse_pending()
        return self._update_reading()

    cdef int _send(self, Exchange exchange) except -1:
        cdef bytes closing = b""
        if exchange.close_after or self.shared.draining:
            closing = b"Connection: close\r\n"
        elif exchange.head is not None and exchange.head.http10:
            closing = b"Connection: keep-alive\r\n"
        head = b"%bContent-Length: %d\r\n%b\r\n" % (exchange.status_line, exchange.body_bytes, closing)
        return self.sender.send(head, exchange.body, exchange.tensors)

    def _close(self) -> None:
        """After what is being written: nothing more is read."""
        if not self.closing:
            self.closing = True
            self.transport.close()

    def _close_if_stalled(self) -> None:
        """Swept each second; the client owes us bytes only in the middle of a head or a body."""
        if self.paused or self.closing:
            return
        if self.state != HEAD:
            if self.shared.tick - self.touched_tick > BODY_TICKS_MAX:
                self.closing = True
                self.transport.abort()
        elif self.pending is not None and self.shared.tick - self.head_tick > HEAD_TICKS_MAX:
            self._refuse_with(408, f"request head not complete after {HEAD_TICKS_MAX} seconds")

    cdef int _update_reading(self) except -1:
        cdef bint pause = self.sender.backlog or len(self.exchanges) >= PIPELINE_MAX
        if pause != self.paused and not self.closing:
            self.paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        return 0
