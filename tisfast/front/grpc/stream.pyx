"""One gRPC call: framing, compression, deadline, status.  Layer 4 (front).

A call ends in one place, `finish`.  With nothing sent yet that is a head with the status in it; otherwise the status goes
behind what is queued.  Messages that are queued hold their blocks, which bounds them.
"""

from collections import deque
from io import BytesIO

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.front.grpc.head cimport CallHead, message_text
from tisfast.front.grpc.message cimport DEFLATE, GZIP, IDENTITY, Coding, OutMessage, coding_for
from tisfast.front.grpc.shared cimport GrpcSession
from tisfast.native.http2 cimport CANCEL, Field, constant_field, copied_field
from tisfast.native.outgoing cimport Outgoing

from tisfast import limits
from tisfast.errors import Internal, TisError
from tisfast.types import STATUS_CODES
from tisfast.wire.compress import decompress

cdef enum:
    PREFIX_BYTES = 5
cdef uint64_t MESSAGE_BYTES_MAX = limits.GRPC_MESSAGE_BYTES_MAX
cdef uint64_t COLLECTED_MAX = limits.GRPC_COLLECTED_MESSAGE_BYTES_MAX
cdef int64_t STALL_TICKS_MAX = limits.GRPC_STALL_SECONDS_MAX

cdef list CODES = [b"%d" % code for code in range(17)]
cdef dict GRPC_CODE = {int(status): codes.grpc for status, codes in STATUS_CODES.items()}


cdef int grpc_code(object status) except -1:
    return GRPC_CODE[int(status)]


cdef inline Field status_field(int code) noexcept:
    cdef bytes text = CODES[code]  # kept by the list
    return constant_field(b"grpc-status", 11, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef class GrpcStream(Reply):
    """See stream.pxd."""

    cdef int open(self, GrpcSession session, int32_t stream_id, CallHead head) except -1:
        self.session = session
        self.shared = session.shared
        self.id = stream_id
        self.encoding = head.encoding
        self.coding = coding_for(self.shared.compression, head.accepts) if self.shared.compression else IDENTITY
        self.in_tick = self.out_tick = self.shared.tick
        if head.timeout_ns >= 0:
            self.timer = self.shared.loop.call_later(head.timeout_ns * 1e-9, self._on_deadline)
        return 0

    # ---- told by the connection

    cdef int feed(self, const uint8_t *data, size_t n) except -1:
        self.session.consumed(self.id, n, 0 if self.throttled else n)
        if self.throttled:
            self.withheld += n
        self.in_tick = self.shared.tick
        try:
            while n and not self.finished:
                used = self._feed(data, n)
                data += used
                n -= used
        except TisError as error:
            self.fail(error)
        except Exception as error:
            self.break_down("a call failed", error)
        return 0

    cdef size_t _feed(self, const uint8_t *data, size_t n) except? 0:
        cdef size_t used
        if self.prefix_bytes < PREFIX_BYTES:
            used = min(n, <size_t>(PREFIX_BYTES - self.prefix_bytes))
            memcpy(self.prefix + self.prefix_bytes, data, used)
            self.prefix_bytes += <int>used
            if self.prefix_bytes == PREFIX_BYTES:
                self._start_message()
        else:
            used = min(n, self.total - self.filled)
            self.on_piece(data, used)
            self.filled += used
        if self.prefix_bytes == PREFIX_BYTES and self.filled == self.total and not self.finished:
            self.prefix_bytes = 0
            self.on_message()
        return used

    cdef int _start_message(self) except -1:
        self.compressed = self.prefix[0] == 1
        self.total = <uint64_t>self.prefix[1] << 24 | <uint64_t>self.prefix[2] << 16 | self.prefix[3] << 8 | self.prefix[4]
        self.filled = 0
        if self.prefix[0] > 1:
            self.finish(GRPC_INTERNAL, f"Invalid message flag {self.prefix[0]}: 0 and 1 are defined")
        elif self.compressed and self.encoding is None:
            self.finish(GRPC_INTERNAL, "compressed message without a grpc-encoding that says how")
        elif self.total > MESSAGE_BYTES_MAX:
            self.finish(
                GRPC_RESOURCE_EXHAUSTED, f"Received message larger than max ({self.total} vs. {MESSAGE_BYTES_MAX})")
        return 0

    cdef int end(self) except -1:
        self.client_done = True
        if self.finished:
            return 0
        if self.prefix_bytes:
            return self.finish(
                GRPC_INTERNAL, f"the call's last message ends after {self.filled} of its {self.total} bytes")
        try:
            self.on_half_close()
        except TisError as error:
            self.fail(error)
        except Exception as error:
            self.break_down("a call failed", error)
        return 0

    cdef int closed(self, uint32_t error_code) except -1:
        gone = not self.finished
        self.finished = True
        self.session = None
        self.stop_timer()
        self.sending = None
        self.queue = None
        self._drop_collected()
        return self.on_gone() if gone else 0

    cdef ssize_t room(self, size_t most, bint *end) except -1:
        cdef uint64_t left
        if self.sending is None and self.queue:
            queued = self.queue.popleft()
            try:
                self.sending = queued if isinstance(queued, OutMessage) else self.render(queued)
            except TisError as error:
                self.queue.clear()
                self.fail(error)
        if self.sending is None:
            end[0] = self.finished
            if self.finished:
                self._trail()
            return 0
        left = self.sending.nbytes - self.sending.sent
        if left > most:
            return <ssize_t>most
        if self.finished and not self.queue:
            end[0] = True
            self._trail()
        return <ssize_t>left

    cdef int take(self, Outgoing out, size_t n) except -1:
        self.out_tick = self.shared.tick
        self.sending.take(out, n)
        if self.sending.sent == self.sending.nbytes:
            if self.sending.traced is not None:
                self.sending.traced.sent()
            self.sending = None
        return 0

    cdef int on_tick(self) except -1:
        """Swept each second: neither side may stand still in the middle of a message."""
        if self.prefix_bytes and not self.finished and not self.throttled \
                and self.shared.tick - self.in_tick > STALL_TICKS_MAX:
            return self.finish(GRPC_DEADLINE_EXCEEDED, f"no byte of the message came for {STALL_TICKS_MAX} seconds")
        if (self.sending is not None or self.queue) and self.shared.tick - self.out_tick > STALL_TICKS_MAX:
            self.session.reset(self.id, CANCEL)
            return self.session.touch()
        return 0

    cdef uint8_t *place(self, size_t *room) noexcept:
        return NULL

    cdef int drain(self) except -1:
        """The server ends: calls that may go on for ever override this."""
        return 0

    # ---- overridden (Cython has no abstract methods: what raises here must be)

    cdef int on_piece(self, const uint8_t *data, uint64_t n) except -1:
        return self._collect(data, n)

    cdef int on_message(self) except -1:
        raise NotImplementedError(f"{type(self).__name__}.on_message")

    cdef int on_half_close(self) except -1:
        return 0

    cdef int on_gone(self) except -1:
        return 0

    cdef OutMessage render(self, object queued):
        raise NotImplementedError(f"{type(self).__name__}.render")

    # ---- messages

    cdef int _collect(self, const uint8_t *data, uint64_t n) except -1:
        if self.collected is None:
            if self.total > COLLECTED_MAX:
                self.finish(GRPC_RESOURCE_EXHAUSTED, f"Received message larger than max ({self.total} vs. {COLLECTED_MAX})")
                return 0
            self.collected = BytesIO()
        self.counted += n
        self.shared.count_collected(<int64_t>n)
        self.collected.write(data[:n])
        return 0

    cdef int _drop_collected(self) except -1:
        self.collected = None
        self.shared.count_collected(-<int64_t>self.counted)
        self.counted = 0
        return 0

    cdef bytes take_message(self):
        cdef bytes data = b"" if self.collected is None else self.collected.getvalue()
        self._drop_collected()
        if not self.compressed:
            return data
        return decompress(self.encoding.decode("latin-1"), data, COLLECTED_MAX)

    cdef int send(self, object message) except -1:
        if self.session is None:
            return 0
        if self.sending is None and not self.queue:
            self.out_tick = self.shared.tick
        if self.sending is None and not self.queue and isinstance(message, OutMessage):
            self.sending = message
        else:
            if self.queue is None:
                self.queue = deque()
            self.queue.append(message)
        if not self.head_sent:
            return 0 if self.finished else self._start()
        self.session.resume(self.id)
        return self.session.touch()

    cdef int _start(self) except -1:
        """The head of an answer with messages."""
        cdef Field fields[4]
        cdef int n = 3
        self.head_sent = True
        fields[0] = constant_field(b":status", 7, b"200", 3)
        fields[1] = constant_field(b"content-type", 12, b"application/grpc", 16)
        fields[2] = constant_field(b"grpc-accept-encoding", 20, b"identity, deflate, gzip", 23)
        if self.coding != IDENTITY:
            n = 4
            fields[3] = constant_field(
                b"grpc-encoding", 13, <const char *>b"gzip" if self.coding == GZIP else <const char *>b"deflate",
                4 if self.coding == GZIP else 7)
        self.session.respond(self.id, fields, n, True)
        return self.session.touch()

    cdef int finish(self, int code, str message) except -1:
        """The status of the call; the client may read it once it has read what was sent before."""
        if self.finished:
            return 0
        self.finished = True
        self.code = code
        self.message = message_text(message) if message else None
        self.stop_timer()
        self._drop_collected()
        if code != GRPC_OK:
            self.on_gone()
        if self.session is None:
            return 0
        if self.head_sent:
            self.session.resume(self.id)
            return self.session.touch()
        if self.sending is not None or self.queue:
            return self._start()
        return self._refuse()

    cdef int _refuse(self) except -1:
        """Head and trailers in one (Trailers-Only)."""
        cdef Field fields[5]
        self.head_sent = True
        fields[0] = constant_field(b":status", 7, b"200", 3)
        if self.http_status is not None:
            fields[0] = copied_field(b":status", 7, PyBytes_AS_STRING(self.http_status), 3)
        fields[1] = constant_field(b"content-type", 12, b"application/grpc", 16)
        fields[2] = constant_field(b"grpc-accept-encoding", 20, b"identity, deflate, gzip", 23)
        fields[3] = status_field(self.code)
        if self.message is not None:
            fields[4] = copied_field(b"grpc-message", 12, PyBytes_AS_STRING(self.message), PyBytes_GET_SIZE(self.message))
        self.session.respond(self.id, fields, 4 + (self.message is not None), False)
        return self.session.touch()

    cdef int _trail(self) except -1:
        cdef Field fields[2]
        fields[0] = status_field(self.code)
        if self.message is not None:
            fields[1] = copied_field(b"grpc-message", 12, PyBytes_AS_STRING(self.message), PyBytes_GET_SIZE(self.message))
        return self.session.trail(self.id, fields, 1 + (self.message is not None))

    cdef int fail(self, object error) except -1:
        return self.finish(grpc_code(error.status), error.message)

    cdef int break_down(self, str what, object error) except -1:
        self.shared.loop.call_exception_handler({"message": what, "exception": error})
        return self.finish(GRPC_INTERNAL, f"unexpected {type(error).__name__} in the server; see its log")

    cdef int give_window(self) except -1:
        """What was withheld may be sent again."""
        withheld, self.withheld = self.withheld, 0
        self.throttled = False
        self.in_tick = self.shared.tick  # the client could not send until now
        if withheld and self.session is not None:
            self.session.consumed(self.id, 0, withheld)
            self.session.touch()
        return 0

    cdef int end_waiting(self) except -1:
        if self.finished or self.shared.tick - self.in_tick <= STALL_TICKS_MAX:
            return 0
        return self.finish(
            GRPC_DEADLINE_EXCEEDED, f"the client did not end its side for {STALL_TICKS_MAX} seconds after its message")

    cdef int stop_timer(self) except -1:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return 0

    def _on_deadline(self) -> None:
        self.timer = None
        self.finish(GRPC_DEADLINE_EXCEEDED, "Deadline Exceeded")
