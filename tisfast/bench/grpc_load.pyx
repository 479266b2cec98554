"""Requests over gRPC: calls of their own, or messages of one stream.  Layer 5 (bench)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from tisfast.bench.kernel cimport MSG_DONTWAIT, MSG_NOSIGNAL, monotonic, send
from tisfast.bench.loop cimport SLOT_BITS, Load, Loop, Marks, Slot
from tisfast.native.gather_write cimport Outgoing, iovec
from tisfast.native.http2 cimport CANCEL, NO_ERROR, Field, Http2Client, constant_field
from tisfast.wire.grpc.cursor cimport FIELD, LEN, VARINT, Cursor, cursor, next_field
from tisfast.wire.grpc.cursor cimport Field as MessageField
from tisfast.wire.text_buffer cimport TextBuffer

import os
from collections import deque
from urllib.parse import unquote

from tisfast import limits
from tisfast.errors import BadRequest, Unavailable

cdef extern from "<sys/socket.h>":
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t sendmsg(int, const msghdr *, int)

cdef enum:
    PREFIX_BYTES = 5
    ID_BYTES = 20
    FIELDS_MAX = 64
    COPIED_MAX = 4096
    REASON_BYTES_MAX = 4096
cdef uint64_t MESSAGE_MAX = limits.GRPC_MESSAGE_BYTES_MAX


cdef class GrpcTemplate:
    """A message as it is sent, with its prefix.  id_at: where its id of 20 bytes lies, -1 for none; marks: of a sequence.

    pack: compresses a message, or None.

    check: of the message of an answer, gives what is wrong with it, or "".
    """
    cdef readonly bytes text
    cdef readonly bytes tail             # behind the id
    cdef readonly Py_ssize_t id_at
    cdef readonly object check
    cdef Marks marks
    cdef object pack
    cdef bytes packed                    # of a message that is always the same

    def __init__(self, bytes message, Py_ssize_t id_at=-1, check=None, Marks marks=None, pack=None):
        self.text = b"\0" + len(message).to_bytes(4, "big") + message
        self.id_at = id_at + PREFIX_BYTES if id_at >= 0 else -1
        self.tail = self.text[self.id_at + ID_BYTES:] if id_at >= 0 else b""
        self.check, self.marks, self.pack = check, marks, pack
        self.packed = self.compressed(self.text) if pack is not None and marks is None and id_at < 0 else None

    cdef bytes compressed(self, bytes text):
        packed = self.pack(text[PREFIX_BYTES:])
        return b"\1" + len(packed).to_bytes(4, "big") + packed

    cdef bytes of(self, Slot *slot):
        """What is sent for this request; of a stream still without its id, and never compressed."""
        if self.packed is not None:
            return self.packed
        text = self.text if self.marks is None else self.marks.written(self.text, slot)
        return text if self.pack is None or self.id_at >= 0 else self.compressed(text)


cdef class CallFields:
    """The head of each call.  pairs: (name, value) of bytes."""
    cdef Field fields[FIELDS_MAX]
    cdef int count
    cdef list pairs

    def __init__(self, list pairs):
        if len(pairs) > FIELDS_MAX:
            raise BadRequest(f"{len(pairs)} fields of a call's head, {FIELDS_MAX} at most: leave some headers (-H) out")
        self.pairs = pairs
        for name, value in self.pairs:
            self.fields[self.count] = constant_field(
                PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
            self.count += 1


cdef class Call:
    """One call: of one request, or the stream of all."""
    cdef Slot *slot                      # NULL: of none, or of a stream
    cdef bytes text                      # what is sent now, ...
    cdef Py_ssize_t at                   # ... how far, ...
    cdef object more                     # ... and behind it: a deque of bytes, or None
    cdef size_t waiting                  # bytes of all of them
    cdef int32_t id
    cdef bint stream, deferred
    cdef int http_status, code           # code: -1 before it has come
    cdef bytes reason
    cdef uint8_t prefix[PREFIX_BYTES]
    cdef int prefix_bytes
    cdef uint64_t total, filled          # of the message that is arriving
    cdef TextBuffer body                 # of it, where somebody wants to see it
    cdef str wrong                       # what the check of the message has found

    def __cinit__(self):
        self.code = -1
        self.reason = b""

    cdef int put(self, bytes text) except -1:
        self.waiting += <size_t>PyBytes_GET_SIZE(text)
        if self.text is None:
            self.text, self.at = text, 0
        else:
            if self.more is None:
                self.more = deque()
            self.more.append(text)
        return 0

    cdef str failure(self):
        """Why it failed, "" when it did not."""
        if self.http_status != 200:
            return f"the server answered with HTTP status {self.http_status}" if self.http_status else "the server reset the call"
        if self.code < 0:
            return "the server ended the call without a status"
        if self.code:
            return unquote(self.reason.decode("utf-8", "replace")) or f"gRPC status {self.code}"
        return self.wrong or ""


cdef class Session(Http2Client):
    """The HTTP/2 side of a GrpcLoad."""
    cdef GrpcLoad load
    cdef Call heading
    cdef int64_t now                     # when the bytes came that are being read
    cdef bint leaving

    cdef int on_response_begins(self, object stream) except -1:
        self.heading = stream
        return 0

    cdef int on_field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1:
        cdef Call call = self.heading
        if call is None:
            return 0
        if name_bytes == 7 and memcmp(name, b":status", 7) == 0:
            call.http_status = number(value, value_bytes)
        elif name_bytes == 11 and memcmp(name, b"grpc-status", 11) == 0:
            call.code = number(value, value_bytes)
        elif name_bytes == 12 and memcmp(name, b"grpc-message", 12) == 0:
            call.reason = value[:min(value_bytes, <size_t>REASON_BYTES_MAX)]
        return 0

    cdef int on_response(self, object stream) except -1:
        self.heading = None
        return 0

    cdef int on_data(self, object stream, const uint8_t *data, size_t n) except -1:
        cdef Call call = stream
        cdef size_t at = 0, part
        self.consumed(call.id, n, n)
        if call.slot != NULL:
            call.slot.received_bytes += n
            if call.slot.first == 0:
                call.slot.first = self.now
        while at < n:
            if call.prefix_bytes < PREFIX_BYTES:
                part = min(n - at, <size_t>(PREFIX_BYTES - call.prefix_bytes))
                memcpy(call.prefix + call.prefix_bytes, data + at, part)
                call.prefix_bytes += <int>part
                at += part
                if call.prefix_bytes == PREFIX_BYTES:
                    self._on_prefix(call)
                if call.prefix_bytes < PREFIX_BYTES or call.total:
                    continue
            part = min(n - at, <size_t>(call.total - call.filled))
            if call.filled == 0 and part == call.total:
                self._on_message(call, data + at)
            else:
                if call.body is not None:
                    call.body.put(data + at, <Py_ssize_t>part)
                call.filled += part
                if call.filled == call.total:
                    self._on_message(call, NULL)
            at += part
        return 0

    cdef int _on_prefix(self, Call call) except -1:
        cdef const uint8_t *prefix = call.prefix
        call.total = <uint64_t>prefix[1] << 24 | <uint64_t>prefix[2] << 16 | <uint64_t>prefix[3] << 8 | prefix[4]
        call.filled = 0
        if prefix[0] or call.total > MESSAGE_MAX:
            raise Unavailable(f"the server sent a message of {call.total} bytes with the flag {prefix[0]}, which nobody asked for")
        call.body = TextBuffer() if call.stream or (call.slot != NULL and self.load.template(call.slot).check is not None) else None
        return 0

    cdef int _on_message(self, Call call, const uint8_t *data) except -1:
        """data: all of it; NULL: it lies in `body`."""
        cdef uint64_t n = call.total
        cdef TextBuffer body = call.body
        call.prefix_bytes, call.body = 0, None
        if call.stream:
            return self.load.on_stream_message(data if data != NULL else body.data, n, self.now)
        if call.slot == NULL:
            return 0
        call.slot.responses += 1
        if body is not None:
            check = self.load.template(call.slot).check
            call.wrong = check((data if data != NULL else <const uint8_t *>body.data)[:n])
        return 0

    cdef int on_end(self, object stream) except -1:
        """The server has said all; what this side has still to send, nobody waits for."""
        cdef Call call = stream
        return self.reset(call.id, CANCEL) if call.waiting or call.stream else 0

    cdef int on_closed(self, object stream, uint32_t error_code) except -1:
        cdef Call call = stream
        text = call.failure()
        if call.code < 0 and error_code != NO_ERROR:
            text = f"the server reset the call (HTTP/2 error {error_code})"
        return self.load.on_call_ended(call, self.now, text)

    cdef int on_goaway(self, int32_t last_stream_id, uint32_t error_code) except -1:
        self.leaving = True
        self.load.places = 0  # nothing begins on it any more
        return 0

    cdef ssize_t on_room(self, object stream, size_t most, bint *end) except -1:
        cdef Call call = stream
        cdef size_t n = min(most, call.waiting)
        end[0] = not call.stream and n == call.waiting
        call.deferred = n == 0 and not end[0]
        return <ssize_t>n

    cdef int on_take(self, object stream, Outgoing out, size_t n) except -1:
        cdef Call call = stream
        cdef size_t used
        call.waiting -= n
        while n:
            used = min(n, <size_t>(PyBytes_GET_SIZE(call.text) - call.at))
            if used <= COPIED_MAX and not out.full():
                out.put(PyBytes_AS_STRING(call.text) + call.at, used)
            else:
                out.add(PyBytes_AS_STRING(call.text) + call.at, used)
                out.keep(call.text)
            call.at += <Py_ssize_t>used
            n -= used
            if call.at == PyBytes_GET_SIZE(call.text):
                call.text, call.at = call.more.popleft() if call.more else None, 0
        return 0


cdef int number(const uint8_t *text, size_t n) noexcept:
    cdef int found = 0
    cdef size_t i
    for i in range(min(n, <size_t>4)):
        if text[i] < 48 or text[i] > 57:
            return 2  # gRPC's UNKNOWN
        found = 10 * found + text[i] - 48
    return found


cdef class GrpcLoad(Load):
    """One connection.  fields: of each call; places: requests under way at most; stream: all in one call.

    decoupled: of a stream: a request is answered any number of times, until an answer says that it is the last.
    """
    cdef Session session
    cdef CallFields fields
    cdef Call call                       # the stream
    cdef bint stream, decoupled
    cdef int most                        # requests under way
    cdef dict wrong                      # by its request's number: what the check of an answer in between has found
    cdef bytes rest                      # what the socket has not taken yet
    cdef Py_ssize_t rest_at

    def __init__(self, Loop loop, CallFields fields, int places, bint stream=False, bint decoupled=False):
        self.fields, self.most, self.stream, self.decoupled = fields, places, stream, decoupled

    cdef GrpcTemplate template(self, Slot *slot):
        return <GrpcTemplate>self.loop.templates[slot.step]

    cdef int on_open(self) except -1:
        self.session = Session()
        self.session.load = self
        self.places = self.most
        self.call, self.rest, self.rest_at, self.wrong = None, None, 0, {}
        return self.flush()

    cdef int begin(self, Slot *slot) except -1:
        cdef GrpcTemplate template = self.template(slot)
        cdef Call call
        slot.sent_bytes = <size_t>PyBytes_GET_SIZE(template.text)
        if self.stream:
            return self._say(slot, template)
        call = Call()
        call.slot = slot
        call.put(template.of(slot))
        call.id = self.session.request(self.fields.fields, self.fields.count, call, True)
        return 0

    cdef int _say(self, Slot *slot, GrpcTemplate template) except -1:
        cdef bytes id = b"%020d" % (slot.serial << SLOT_BITS | slot.index)
        if self.call is None:
            self.call = Call()
            self.call.stream = True
            self.call.id = self.session.request(self.fields.fields, self.fields.count, self.call, True)
        text = template.of(slot)
        if template.pack is not None:
            self.call.put(template.compressed(text[:template.id_at] + id + text[template.id_at + ID_BYTES:]))
        else:
            self.call.put(text[:template.id_at] + id)
            self.call.put(template.tail if template.marks is None else text[template.id_at + ID_BYTES:])
        if self.call.deferred:
            self.call.deferred = False
            self.session.resume(self.call.id)
        return 0

    cdef int flush(self) except -1:
        cdef Outgoing out
        cdef msghdr message
        cdef ssize_t n
        if self.session is None:
            return 0
        if self.channel is not None:
            return self._flush_sealed()
        if self.rest is not None:
            n = send(self.fd, PyBytes_AS_STRING(self.rest) + self.rest_at, <size_t>(PyBytes_GET_SIZE(self.rest) - self.rest_at),
                     MSG_NOSIGNAL | MSG_DONTWAIT)
            self.rest_at += <Py_ssize_t>self._taken(n)
            if self.rest_at < PyBytes_GET_SIZE(self.rest):
                return self.want_out(True)
            self.rest = None
        out = self.session.out
        while self.session.collect():
            memset(&message, 0, sizeof(message))
            message.msg_iov, message.msg_iovlen = out.pieces, <size_t>out.count
            n = <ssize_t>self._taken(sendmsg(self.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT))
            if <size_t>n < out.nbytes:
                self.rest, self.rest_at = left_over(out, <size_t>n), 0
                out.clear()
                return self.want_out(True)
            out.clear()
        return self.want_out(False)

    cdef int _flush_sealed(self) except -1:
        cdef Outgoing out = self.session.out
        while self.send_sealed() and self.session.collect():
            self.channel.seal(left_over(out, 0))
            out.clear()
        return 0

    cdef ssize_t _taken(self, ssize_t n) except -1:
        if n < 0:
            if errno != EAGAIN and errno != EINTR:
                raise Unavailable(f"the connection was lost: {os.strerror(errno)}")
            return 0
        return n

    cdef int on_bytes(self, ssize_t n) except -1:
        cdef Loop loop = self.loop
        if n == 0:
            raise Unavailable("the server closed the connection")
        self.session.now = monotonic()
        if self.session.receive(loop.room, <size_t>n) < 0:
            raise Unavailable(f"the server does not speak HTTP/2: it sent {loop.room[:min(n, 20)]!r}")
        if self.session.leaving and self.busy == 0:
            self.renew()
        return 0

    cdef int on_call_ended(self, Call call, int64_t now, str text) except -1:
        cdef Slot *slot = call.slot
        call.slot = NULL
        if call.stream:
            self.call = None
            return self.loop.fail_all(self, str(max(call.code, 0)), text or "the server ended the stream", now)
        if slot == NULL:
            return 0
        if text or slot.responses != 1:
            return self.failed(slot, now, str(max(call.code, 0)), text or f"the call had {slot.responses} answers")
        return self.done(slot, now, 0)

    cdef int on_stream_message(self, const uint8_t *data, uint64_t n, int64_t now) except -1:
        cdef Answer answer = read_stream_answer(data, n)
        cdef Slot *slot = self.loop.slot_of(self, answer.id)
        if slot == NULL:
            return 0  # of a request that has failed meanwhile
        slot.received_bytes += n + PREFIX_BYTES
        if slot.first == 0:
            slot.first = now
        if self.decoupled:
            self.loop.stamp(slot, now)
        if answer.has_error:
            return self.failed(slot, now, "stream", answer.error[:answer.error_bytes].decode("utf-8", "replace"))
        if answer.outputs or not answer.final:
            slot.responses += 1
            if slot.responses == self.loop.period:
                self.loop.on_period()
        wrong = self.wrong.pop(slot.serial, "") if self.wrong else ""
        check = self.template(slot).check
        if check is not None and not wrong and (answer.outputs or not self.decoupled):
            wrong = check(answer.message[:answer.message_bytes] if answer.message != NULL else b"")
        if self.decoupled and not answer.final:
            if wrong:
                self.wrong[slot.serial] = wrong
            return 0
        return self.failed(slot, now, "0", wrong) if wrong else self.done(slot, now, 0)

    cdef int on_lost(self, str text) except -1:
        self.session, self.call, self.rest = None, None, None
        return 0


cdef bytes left_over(Outgoing out, size_t taken):
    cdef list found = []
    cdef int i
    for i in range(out.count):
        if taken >= out.pieces[i].iov_len:
            taken -= out.pieces[i].iov_len
        else:
            found.append((<char *>out.pieces[i].iov_base)[taken:out.pieces[i].iov_len])
            taken = 0
    return b"".join(found)


cdef struct Answer:                      # of a stream
    uint64_t id                          # 0: none
    bint final, has_error
    int outputs
    const uint8_t *error
    size_t error_bytes
    const uint8_t *message
    uint64_t message_bytes


cdef Answer read_stream_answer(const uint8_t *data, uint64_t n) except *:
    """What counts of a ModelStreamInferResponse."""
    cdef Answer answer
    cdef Cursor outer = cursor(data, n), inner
    cdef MessageField field
    cdef int state = next_field(&outer, &field)
    cdef size_t i
    memset(&answer, 0, sizeof(answer))
    while state == FIELD:
        if field.kind == LEN and field.number == 1 and field.nbytes:
            answer.has_error, answer.error, answer.error_bytes = True, field.data, min(<size_t>field.nbytes, <size_t>REASON_BYTES_MAX)
        elif field.kind == LEN and field.number == 2:
            answer.message, answer.message_bytes = field.data, field.nbytes
            inner = cursor(field.data, field.nbytes)
            state = next_field(&inner, &field)
            while state == FIELD:
                if field.kind == LEN and field.number == 3:
                    for i in range(min(<size_t>field.nbytes, <size_t>ID_BYTES)):
                        answer.id = 10 * answer.id + <uint64_t>(field.data[i] & 15)
                elif field.kind == LEN and field.number == 4:
                    answer.final = answer.final or is_final(field.data, field.nbytes)
                elif field.kind == LEN and field.number == 5:
                    answer.outputs += 1
                state = next_field(&inner, &field)
        if state < 0:
            break
        state = next_field(&outer, &field)
    if state < 0:
        raise Unavailable("the server's message is no ModelStreamInferResponse")
    return answer


cdef bint is_final(const uint8_t *data, uint64_t n) noexcept:
    """An entry of parameters: "triton_final_response", true."""
    cdef Cursor entry = cursor(data, n), value
    cdef MessageField field
    cdef bint named = False, true = False
    while next_field(&entry, &field) == FIELD:
        if field.number == 1 and field.kind == LEN:
            named = field.nbytes == 21 and memcmp(field.data, b"triton_final_response", 21) == 0
        elif field.number == 2 and field.kind == LEN:
            value = cursor(field.data, field.nbytes)
            while next_field(&value, &field) == FIELD:
                true = true or (field.number == 1 and field.kind == VARINT and field.value != 0)
    return named and true
