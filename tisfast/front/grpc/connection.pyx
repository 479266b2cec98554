"""One gRPC client connection: bytes between the socket and an HTTP/2 session, its age, its pings.  Layer 4 (front).

uvloop calls get_buffer, the kernel writes there, buffer_updated says how much.  What frames and calls have to say is
gathered and written at once, straight from the arenas.  Nothing here waits, and nothing logs: what a client does wrong
is the client's to read.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from tisfast.front.grpc.head cimport MODEL_INFER, MODEL_STREAM_INFER, CallHead
from tisfast.front.grpc.infer_call cimport InferCall, InferenceStream
from tisfast.front.grpc.listener_context cimport GrpcSession, GrpcListenerContext
from tisfast.front.grpc.stream cimport (
    GRPC_INTERNAL, GRPC_RESOURCE_EXHAUSTED, GRPC_UNAVAILABLE, GRPC_UNIMPLEMENTED, GrpcStream)
from tisfast.front.grpc.stream_infer_call cimport StreamInferCall
from tisfast.front.grpc.unary cimport StreamingCall, UnaryCall
from tisfast.front.receive_watermark cimport ReceiveWatermark
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.front.socket_writer cimport iovec as sender_iovec
from tisfast.front.transfer_fairness cimport TransferFairness
from tisfast.native.gather_write cimport Outgoing
from tisfast.native.http2 cimport CANCEL, ENHANCE_YOUR_CALM, NO_ERROR
from tisfast.native.memory cimport BufferView

import random

from tisfast import limits, tuning
from tisfast.errors import TisError
from tisfast.front.transfer_fairness import SHARING

cdef Py_ssize_t CONNECTIONS_MAX = limits.GRPC_CONNECTIONS_MAX
cdef TransferFairness sharing = SHARING
cdef Py_ssize_t RECEIVE_BYTES = tuning.GRPC_RECEIVE_BUFFER_BYTES
cdef Py_ssize_t RECEIVE_START_BYTES = tuning.GRPC_RECEIVE_START_BYTES
cdef size_t DIRECT_BYTES_MIN = tuning.GRPC_DIRECT_BYTES_MIN
cdef uint64_t METADATA_BYTES_MAX = limits.GRPC_METADATA_BYTES_MAX
cdef int64_t STALL_TICKS_MAX = limits.GRPC_STALL_SECONDS_MAX
cdef int64_t DRAIN_TICKS = limits.GRPC_DRAIN_SECONDS
cdef uint64_t COLLECTED_MAX = limits.GRPC_COLLECTED_MESSAGE_BYTES_MAX
cdef double RESETS_BURST = limits.HTTP2_RESETS_BURST
cdef double RESETS_PER_SECOND = limits.HTTP2_RESETS_PER_SECOND
cdef double PING_IDLE_SECONDS = limits.GRPC_PING_IDLE_SECONDS
cdef double AGE_JITTER = 0.1  # gRPC's: connections that came together do not leave together
cdef str SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests."
cdef str INFERENCE = "inference"


cdef inline int64_t ticks(int64_t milliseconds) noexcept:
    return (milliseconds + 999) // 1000


cdef class GrpcConnection(GrpcSession):
    """An asyncio.BufferedProtocol."""

    def __cinit__(self, GrpcListenerContext shared):
        self.shared = shared
        self.head = CallHead()
        self.resets_left = RESETS_BURST
        age = shared.settings.max_connection_age_ms
        if age:
            self.age_ticks_max = max(1, ticks(<int64_t>(age * random.uniform(1 - AGE_JITTER, 1 + AGE_JITTER))))

    # ---- what uvloop calls

    def connection_made(self, transport) -> None:
        """Accepted."""
        self.transport = transport
        direct = transport.get_extra_info("sslcontext") is None
        self.sender, self.receiver = SocketWriter(transport, self.shared.loop, direct), ReceiveWatermark(transport, direct)
        self.fd = self.sender.fd
        self.peer = transport.get_extra_info("peername")
        self.born_tick = self.touched_tick = self.resets_tick = self.shared.tick
        self.shared.connections.add(self)
        if len(self.shared.connections) > CONNECTIONS_MAX:
            self.closing = True
            transport.abort()
            return
        if self.shared.on_made is not None:
            self.shared.on_made()
        if self.shared.draining:  # it was in its TLS handshake when that began
            self.leave()
        self.flush()

    def connection_lost(self, error) -> None:
        """Gone: cancel what the engine still has, let go of all blocks."""
        cdef GrpcStream stream
        self.closing = True
        self.view = None
        self.sender.drop()
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:
            stream.closed(CANCEL)
        self.shared.connections.discard(self)
        if not self.shared.connections and self.shared.on_empty is not None:
            self.shared.on_empty()

    def eof_received(self):
        """A client that closes its side is gone."""
        return False

    def pause_writing(self) -> None:
        """The kernel took less than we gave: read nothing more meanwhile."""
        if self.sender is None:
            return  # TLS still holds bytes of its handshake while the sender is made; resume_writing follows
        self.sender.pause()
        self.sender.hold(True)

    def resume_writing(self) -> None:
        """Everything written is with the kernel."""
        if self.sender is None:
            return
        self.sender.resume()
        if not self.sender.backlog:
            self.flush()
            self._update_reading()

    def get_buffer(self, hint):
        """Where the next bytes go: those of a large tensor, in the middle of a frame, straight to its block."""
        self.view = None  # of a read that met nothing
        if self.data_left >= DIRECT_BYTES_MIN and self.sender.fd >= 0:
            return self._place()
        self.offered = RECEIVE_START_BYTES if self.large else RECEIVE_BYTES
        return self.shared.receive_start if self.large else self.shared.receive

    cdef object _place(self):
        cdef GrpcStream stream = self.streams.get(self.data_stream)
        cdef size_t room = 0
        cdef uint8_t *at = NULL if stream is None else stream.place(&room)
        room = min(room, self.data_left)
        if at == NULL or room < DIRECT_BYTES_MIN:
            self.offered = RECEIVE_BYTES
            return self.shared.receive
        self.large = True
        self.offered = room = sharing.turn(room)
        self.view = BufferView.__new__(BufferView)
        self.view.aim((<InferenceStream>stream).block, at, room, True)
        return self.view

    def buffer_updated(self, Py_ssize_t n) -> None:
        """n bytes are there."""
        cdef const uint8_t *data = self.shared.receive_data
        cdef BufferView view = self.view
        cdef int code = 0
        if view is not None:
            data = view.data
            self.view = None
        if self.ending or self.closing:
            return
        self.touched_tick = self.shared.tick
        self.shared.turns.begin_read()
        if n == self.offered and self.receiver.had_turn(n):
            self.sender.rest()
        self.receiving = True
        try:
            code = self.receive(data, n)
        finally:
            self.receiving = False
        if self.large and view is None and n == RECEIVE_START_BYTES and self.data_left < DIRECT_BYTES_MIN:
            self.large = False  # many small frames: rather more of them at one time
        self.flush()
        if code < 0:
            self._close()

    # ---- bytes out

    cdef int flush(self) except -1:
        """Write what can be written."""
        cdef Outgoing out
        cdef bint more = False
        if self.closing or self.collecting:
            return 0
        self.collecting = True
        try:
            if not self.sender.backlog and self.collect():
                out = self.out
                more = out.full()
                self.sender.send(<sender_iovec *>out.pieces, out.count, 0 if out.owners else out.count, out)
                if self.sender.backlog and out.owners:
                    self.renew_out()
                else:
                    out.clear()
        except Exception as error:  # our bug: this connection's frames are no whole any more, others go on
            self.break_off(error)
            return 0
        finally:
            self.collecting = False
        if self.sender.backlog:
            self._update_reading()
        elif more:
            self.mark()  # others have their turn before what is left of it is made
        elif self.ending or self.over():
            self._close()
        return 0

    def break_off(self, error: Exception) -> None:
        """Nothing that follows on this connection would make sense: report why, and end it."""
        self.closing = True
        self.transport.abort()
        self.shared.loop.call_exception_handler({"message": "a gRPC connection failed", "exception": error})

    def _update_reading(self) -> None:
        if not self.closing:
            self.sender.hold(self.sender.backlog)

    cdef int _close(self) except -1:
        """The transport sends what it has, and goes."""
        if not self.closing:
            self.closing = True
            self.sender.close()
        return 0

    # ---- what the session tells

    cdef int on_request_begins(self) except -1:
        self.head_open = True
        self.head_tick = self.shared.tick
        return self.head.begin(self.shared.keeps_metadata)

    cdef int on_field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1:
        if self.head.nbytes <= METADATA_BYTES_MAX:
            self.head.field(name, name_bytes, value, value_bytes)
        return 0

    cdef void on_head_invalid(self) noexcept:
        self.head_open = False

    cdef object on_request(self, int32_t stream_id):
        cdef GrpcStream stream
        self.head_open = False
        try:
            return self.make_stream(stream_id)
        except TisError as error:
            stream = self.refused(stream_id, None, 0, None)
            stream.fail(error)
            return stream

    cdef GrpcStream make_stream(self, int32_t stream_id):
        cdef CallHead head = self.head
        cdef GrpcStream stream
        if head.nbytes > METADATA_BYTES_MAX:
            self.gate.count_large_head()
            return self.refused(
                stream_id, None, GRPC_RESOURCE_EXHAUSTED,
                f"received metadata size exceeds limit ({head.nbytes} vs. {METADATA_BYTES_MAX} bytes)")
        if not head.is_post:
            return self.refused(stream_id, b"405", GRPC_INTERNAL, "gRPC calls are POST requests")
        if not head.is_grpc:
            return self.refused(stream_id, b"415", GRPC_INTERNAL, "the content-type of gRPC calls is application/grpc")
        if self.shared.draining:
            return self.refused(stream_id, None, GRPC_UNAVAILABLE, SHUTTING_DOWN)
        if head.encoding is not None and head.encoding not in (b"gzip", b"deflate"):
            return self.refused(
                stream_id, None, GRPC_UNIMPLEMENTED,
                f"grpc-encoding {head.encoding.decode('latin-1')!r:.60} is none of identity, deflate, gzip")
        if head.method == MODEL_INFER or head.method == MODEL_STREAM_INFER:
            if self.shared.restriction is not None:
                self.shared.restriction.check(INFERENCE, head.metadata)
            if head.method == MODEL_INFER:
                stream = InferCall.__new__(InferCall)
            else:
                stream = StreamInferCall.__new__(StreamInferCall)
                (<StreamInferCall>stream).wants_status = head.wants_status
            (<InferenceStream>stream).metadata = head.metadata
            if self.shared.forward is not None:
                self.forward_metadata(<InferenceStream>stream)
            stream.open(self, stream_id, head)
            stream.message_max = COLLECTED_MAX
            return stream
        return self._other(stream_id, head)

    def forward_metadata(self, InferenceStream stream) -> None:
        """A name that is reserved fails the requests of the call, each by itself."""
        try:
            stream.forwarded = self.shared.forward.parameters(self.head.metadata)
        except TisError as error:
            stream.unforwardable = error

    def _other(self, int32_t stream_id, CallHead head) -> GrpcStream:
        cdef UnaryCall unary
        cdef StreamingCall streaming
        method = self.shared.methods.unary(head.path)
        found = method if method is not None else self.shared.methods.stream(head.path)
        if found is None:
            return self.refused(stream_id, None, GRPC_UNIMPLEMENTED, f"unknown method {head.path:.200}")
        if self.shared.restriction is not None:
            self.shared.restriction.check(found.category, head.metadata)
        if method is not None and method.guard is not None:
            method.guard(head.metadata or {}, self.transport)
        if method is not None:
            unary = UnaryCall.__new__(UnaryCall)
            unary.handler, unary.metadata, unary.path = method.handler, head.metadata or {}, head.path
            unary.open(self, stream_id, head)
            unary.message_max = method.bytes_max
            return unary
        streaming = StreamingCall.__new__(StreamingCall)
        streaming.open(self, stream_id, head)
        streaming.start_call(found)
        return streaming

    cdef GrpcStream refused(self, int32_t stream_id, bytes http_status, int code, str message):
        """A call that ends before it begins; code 0: the caller ends it."""
        cdef GrpcStream stream = GrpcStream.__new__(GrpcStream)
        self.head.timeout_ns = -1
        stream.open(self, stream_id, self.head)
        if http_status is not None:
            stream.http_status = http_status
        if code:
            stream.finish(code, message)
        return stream

    cdef int on_data(self, object stream, const uint8_t *data, size_t n) except -1:
        return (<GrpcStream>stream).feed(data, n)

    cdef int on_end(self, object stream) except -1:
        if not self.large:
            sharing.small_request()
        return (<GrpcStream>stream).end()

    cdef int on_closed(self, object stream, uint32_t error_code) except -1:
        return (<GrpcStream>stream).closed(error_code)

    cdef ssize_t on_room(self, object stream, size_t most, bint *end) except -1:
        return (<GrpcStream>stream).room(most, end)

    cdef int on_take(self, object stream, Outgoing out, size_t n) except -1:
        return (<GrpcStream>stream).take(out, n)

    # ---- pings and misuse

    cdef int on_ping(self, bint ack) except -1:
        """Clients that ping too often are sent away."""
        settings = self.shared.settings
        cdef double now, interval
        if ack:
            self.ping_open = False
            if self.leaving and not self.left:
                self.left = True
                self.go_away(NO_ERROR, b"")
            return 0
        now = self.shared.loop.time()
        interval = settings.min_ping_interval_ms * 1e-3
        if not self.streams and not settings.keepalive_permit_without_calls:
            interval = max(interval, PING_IDLE_SECONDS)
        if self.pinged and now - self.pinged < interval:
            self.strikes += 1
            if settings.max_ping_strikes and self.strikes > settings.max_ping_strikes:
                self.calm(b"too_many_pings")
        self.pinged = now
        return 0

    cdef int on_flood(self, bytes reason) except -1:
        return self.calm(reason)

    cdef int on_sent(self, bint carries, bint resets) except -1:
        cdef int64_t tick = self.shared.tick
        if carries:
            self.gate.moved()
            self.pinged = 0
            self.strikes = self.pings_without_data = 0
        elif resets:
            self.resets_left = min(
                RESETS_BURST, self.resets_left + (tick - self.resets_tick) * RESETS_PER_SECOND) - 1
            self.resets_tick = tick
            if self.resets_left < 0:
                self.calm(b"too_many_resets")
        return 0

    cdef int calm(self, bytes reason) except -1:
        """Send the client away; the connection closes once it has been told why."""
        if not self.ending:
            self.ending = True
            self.go_away(ENHANCE_YOUR_CALM, reason)
        return 0

    # ---- time

    def on_tick(self) -> None:
        """Swept each second."""
        cdef GrpcStream stream
        self.gate.second()
        self.view = None  # as in get_buffer: it must not outlast its call
        if self.sender.unread_for(self.shared.tick) > STALL_TICKS_MAX or not self.closing and self._stalled():
            self.closing = True
            self.transport.abort()
        if self.closing:
            return
        for stream in list(self.streams.values()):
            stream.on_tick()
        self._keep_alive()
        self._end_of_age()
        self.flush()

    cdef bint _stalled(self) except -1:
        """The client owes us a greeting, the rest of a head, or the answer to a ping."""
        cdef int64_t tick = self.shared.tick
        if not self.gate.greeted and tick - self.born_tick > STALL_TICKS_MAX:
            return True
        if self.head_open and tick - self.head_tick > STALL_TICKS_MAX:
            return True
        return self.ping_open and tick - self.ping_tick > ticks(self.shared.settings.keepalive_timeout_ms)

    cdef int _keep_alive(self) except -1:
        settings = self.shared.settings
        if self.ping_open or self.shared.tick - max(self.touched_tick, self.ping_tick) < ticks(settings.keepalive_time_ms):
            return 0
        if not self.streams and not settings.keepalive_permit_without_calls:
            return 0
        if settings.max_pings_without_data and self.pings_without_data >= settings.max_pings_without_data:
            return 0
        self.pings_without_data += 1
        self.ping_open = True
        self.ping_tick = self.shared.tick
        return self.ping()

    cdef int _end_of_age(self) except -1:
        cdef int64_t tick = self.shared.tick
        cdef int64_t grace = self.shared.settings.max_connection_age_grace_ms
        if self.leaving:
            if not self.left and tick - self.leaving_tick >= DRAIN_TICKS:
                self.left = True
                self.go_away(NO_ERROR, b"")
            if grace and self.age_ticks_max and tick - self.born_tick >= self.age_ticks_max + ticks(grace):
                self.closing = True
                self.transport.abort()
        elif self.age_ticks_max and tick - self.born_tick >= self.age_ticks_max:
            self.leave()
        return 0

    cdef int leave(self) except -1:
        """No new calls; those that are on their way are still taken (RFC 9113, 6.8)."""
        if self.leaving or self.closing:
            return 0
        self.leaving = True
        self.leaving_tick = self.ping_tick = self.shared.tick
        self.announce_shutdown()
        return self.ping()

    def drain(self) -> None:
        """The server ends, and calls this again and again: what has nothing to say any more goes."""
        cdef GrpcStream stream
        if self.leaving and not self.left and not self.streams and not self.closing:
            self.left = True  # calls that its client began since the first GOAWAY would be here by now
            self.go_away(NO_ERROR, b"")
        self.leave()
        for stream in list(self.streams.values()):
            stream.drain()
        self.flush()
        if self.closing and self.sender.arrived():
            self.transport.abort()  # as over HTTP: a TLS client's farewell is not waited for
