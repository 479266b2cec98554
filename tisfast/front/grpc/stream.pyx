"""One gRPC call: framing, compression, deadline, status.  Layer 4 (front).

A call ends in one place, `finish`.  With nothing sent yet that is a head with the status in it; otherwise the status goes
behind what is queued.  Messages that are queued hold their blocks, which bounds them.
"""

import logging
from collections import deque
from io import BytesIO

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.front.grpc.head cimport MODEL_INFER, CallHead, message_text
from tisfast.front.grpc.listener_context cimport GrpcSession
from tisfast.front.grpc.message cimport DEFLATE, GZIP, IDENTITY, Coding, OutMessage, coding_for
from tisfast.native.gather_write cimport Outgoing
from tisfast.native.http2 cimport CANCEL, Field, constant_field, copied_field

from tisfast import defaults, limits, tuning
from tisfast.errors import Internal, TisError
from tisfast.native.memory import now_ns
from tisfast.types import EXECUTED_FIELD, STATUS_CODES
from tisfast.wire.compress import decompress

cdef enum:
    PREFIX_BYTES = 5
cdef uint64_t MESSAGE_BYTES_MAX = limits.GRPC_MESSAGE_BYTES_MAX
cdef uint64_t CALL_BYTES_MAX = limits.GRPC_CALL_BYTES_MAX
cdef uint64_t LOAD_EXPANDED_BYTES_MAX = limits.LOAD_EXPANDED_BYTES_MAX
cdef int64_t STALL_TICKS_MAX = limits.GRPC_STALL_SECONDS_MAX
cdef uint64_t WEIGHED_BYTES = tuning.GRPC_TURN_WEIGHED_BYTES
cdef uint64_t LONG_BYTES = defaults.CODEC_BYTES_MIN
cdef int64_t UNSENT_BYTES_MAX = limits.GRPC_UNSENT_BYTES_MAX
cdef int64_t CONNECTION_UNSENT_BYTES_MAX = limits.GRPC_CONNECTION_UNSENT_BYTES_MAX

cdef object log = logging.getLogger("tisfast.grpc")
cdef str MODEL_INFER_PATH = "/inference.GRPCInferenceService/ModelInfer"
cdef str STREAM_INFER_PATH = "/inference.GRPCInferenceService/ModelStreamInfer"
cdef bytes EXECUTED = EXECUTED_FIELD.encode()
cdef list CODES = [b"%d" % code for code in range(17)]
cdef dict GRPC_CODE = {int(status): codes.grpc for status, codes in STATUS_CODES.items()}


cdef int grpc_code(object status) except -1:
    return GRPC_CODE[int(status)]


cdef inline Field status_field(int code) noexcept:
    cdef bytes text = CODES[code]  # kept by the list
    return constant_field(b"grpc-status", 11, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef class GrpcStream(AnswerSink):
    """See stream.pxd."""

    cdef int open(self, GrpcSession session, int32_t stream_id, CallHead head) except -1:
        self.session = session
        self.shared = session.shared
        self.id = stream_id
        self.message_max = CALL_BYTES_MAX
        self.encoding = head.encoding
        self.coding = coding_for(self.shared.compression, head.accepts) if self.shared.compression else IDENTITY
        self.in_tick = self.out_tick = self.shared.tick
        if self.shared.access is not None:
            self.began_ns = now_ns()
            self.rpc = head.path or (MODEL_INFER_PATH if head.method == MODEL_INFER else STREAM_INFER_PATH)
        if head.timeout_ns >= 0:
            self.timer = self.shared.loop.call_later(head.timeout_ns * 1e-9, self._on_deadline)
        return 0

    # ---- told by the connection

    cdef int feed(self, const uint8_t *data, size_t n) except -1:
        cdef bint hold = self.held is not None or self.throttled or self.job is not None
        cdef size_t used
        self.session.consumed(self.id, n, 0 if hold else n)
        if hold:
            self.withheld += n
        self.in_tick = self.shared.tick
        self.received_bytes += n
        if self.held is not None:
            self.held += data[:n]
            return 0
        used = self.work(data, n)
        if used < n:
            self.held = PyByteArray_FromStringAndSize(<const char *>data + used, n - used)
            self._await_turn()
        return 0

    cdef size_t work(self, const uint8_t *data, size_t n) except? 0:
        cdef size_t at = 0
        self.working = True
        try:
            while at < n and not self.finished:
                if not self.prefix_bytes and (
                        self.job is not None or self.throttled or self.shared.turns.left <= 0):
                    return at
                at += self._feed(data + at, n - at)
        except TisError as error:
            self.fail(error)
        except Exception as error:
            self.break_down("a call failed", error)
        finally:
            self.working = False
        return n

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
            self.shared.turns.spend(self._weight())
            self.on_message()
        return used

    cdef inline int _weight(self) noexcept:
        """The cost of a message among those of a turn.  What it expands to is read here up to LONG_BYTES."""
        return 1 + <int>((LONG_BYTES if self.compressed else min(self.total, LONG_BYTES)) // WEIGHED_BYTES)

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
        if self.job is not None or self.held is not None:
            self.end_held = True
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
        if self.began_ns:
            self._note()
        self.finished = True
        self.count_unsent(-self.unsent)
        self.session = None
        self.stop_timer()
        self.sending = None
        self.queue = None
        self._drop_collected()
        self.drop_job()
        return self.on_gone() if gone else 0

    # ---- what must be done first

    cdef int wait_for(self, object job) except -1:
        self.job = job
        try:
            self.shared.codecs.submit(job)
        except TisError:
            self.job = None
            raise
        return 0

    cdef int go_on(self) except -1:
        cdef GrpcSession session = self.session
        cdef bint receiving
        if session is None:
            return 0
        receiving, session.receiving = session.receiving, True  # what it has to say leaves with one write
        try:
            self._take_up()
        finally:
            session.receiving = receiving
        return session.touch()

    cdef int _take_up(self) except -1:
        cdef bytearray held = self.held
        cdef size_t n, used
        if self.working:
            return 0  # a job of what is being read could not even begin: the reader goes on by itself
        if held is not None:
            n = <size_t>len(held)
            used = self.work(<const uint8_t *>PyByteArray_AS_STRING(held), n)
            if used < n:
                del held[:used]  # which moves nothing: a bytearray begins where it likes
                return self._await_turn()
            self.held = None
        if self.finished or self.job is not None:
            return 0
        if not self.throttled:
            self.give_window()
        if self.end_held:
            self.end_held = False
            self.end()
        return 0

    cdef int job_done(self) except -1:
        self.job = None
        return self.go_on()

    def take_turn(self) -> None:
        """Called by shared.turns in the call's turn."""
        self.parked = False
        try:
            self.go_on()
        except Exception as error:  # our bug: the other calls have their turn
            if self.session is not None:
                self.session.break_off(error)

    cdef int _await_turn(self) except -1:
        """Unless something else comes first, which will say so."""
        if self.job is not None or self.throttled or self.parked:
            return 0
        self.parked = True
        return self.shared.turns.park(self)

    cdef bint crowded(self, int parts) except -1:
        return self.unsent >= UNSENT_BYTES_MAX // parts or (
            self.unsent > 0 and self.session is not None and self.session.unsent >= CONNECTION_UNSENT_BYTES_MAX)

    cdef int throttle(self) except -1:
        if not self.throttled and self.crowded(1):
            self.throttled = True
        return 0

    cdef int unthrottle(self) except -1:
        if not self.throttled or self.finished or self.crowded(2):
            return 0
        self.throttled = False
        if self.held is not None:
            return self._await_turn()
        return self.give_window() if self.job is None else 0

    cdef int count_unsent(self, int64_t change) except -1:
        self.unsent += change
        if self.session is not None:
            self.session.unsent += change
        return 0

    cdef int drop_job(self) except -1:
        job, self.job, self.held = self.job, None, None
        if job is not None:
            self.shared.codecs.cancel(job)
        return 0

    cdef bint awaits(self, object queued) except -1:
        return False

    cdef ssize_t room(self, size_t most, bint *end) except -1:
        cdef uint64_t left
        if self.sending is None and self.queue:
            if self.awaits(self.queue[0]):
                return 0
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
        self.sent_bytes += n
        if self.sending.sent == self.sending.nbytes:
            if self.sending.traced is not None:
                self.sending.traced.sent()
            if self.sending.counted:
                self.count_unsent(-self.sending.counted)
            self.sending = None
            if self.throttled:
                self.unthrottle()
        return 0

    cdef int on_tick(self) except -1:
        """Swept each second: neither side may stand still in the middle of a message."""
        if self.prefix_bytes and not self.finished and not self.throttled \
                and self.shared.tick - self.in_tick > STALL_TICKS_MAX:
            return self.finish(GRPC_DEADLINE_EXCEEDED, f"no byte of the message came for {STALL_TICKS_MAX} seconds")
        if self.sending is None and self.queue and self.awaits(self.queue[0]):
            self.out_tick = self.shared.tick  # we let the client wait
        elif (self.sending is not None or self.queue) and self.shared.tick - self.out_tick > STALL_TICKS_MAX:
            self.session.reset(self.id, CANCEL)
            return self.session.touch()
        return 0

    cdef int _note(self) except -1:
        """Its line of the access log."""
        model, id = self.asked or ("", "")
        code = self.code if self.finished else GRPC_CANCELLED
        if not self.finished:
            log.debug("Cancellation notification received for %sHandler, the client has left", self.rpc.rpartition("/")[2])
        self.shared.access_log.note(
            "", self.rpc, model, code, self.began_ns, self.received_bytes, self.sent_bytes, self.session.peer, id)
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
            if self.total > self.message_max:
                self.finish(
                    GRPC_RESOURCE_EXHAUSTED, f"Received message larger than max ({self.total} vs. {self.message_max})")
                return 0
            self.collected = self.new_collection()
        self.counted += n
        self.shared.count_collected(<int64_t>n)
        self.collected.write(data[:n])
        return 0

    cdef object new_collection(self):
        """Where a message goes that is collected."""
        return BytesIO()

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
        return decompress(self.encoding.decode("latin-1"), data, self.expanded_max(data), self.expanded_hint())

    cdef uint64_t expanded_max(self, bytes data) except? 0:
        return min(self.message_max, LOAD_EXPANDED_BYTES_MAX)

    cdef str expanded_hint(self):
        return ""

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
        self.drop_job()
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
        cdef Field fields[6]
        cdef bint told = self.executed and self.code == GRPC_UNAVAILABLE
        self.head_sent = True
        fields[0] = constant_field(b":status", 7, b"200", 3)
        if self.http_status is not None:
            fields[0] = copied_field(b":status", 7, PyBytes_AS_STRING(self.http_status), 3)
        fields[1] = constant_field(b"content-type", 12, b"application/grpc", 16)
        fields[2] = constant_field(b"grpc-accept-encoding", 20, b"identity, deflate, gzip", 23)
        fields[3] = status_field(self.code)
        fields[4] = constant_field(PyBytes_AS_STRING(EXECUTED), PyBytes_GET_SIZE(EXECUTED), b"true", 4)
        if self.message is not None:
            fields[4 + told] = copied_field(b"grpc-message", 12, PyBytes_AS_STRING(self.message), PyBytes_GET_SIZE(self.message))
        self.session.respond(self.id, fields, 4 + told + (self.message is not None), False)
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
        """Give the client the window that was withheld."""
        withheld, self.withheld = self.withheld, 0
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
