"""HTTP/2 sessions that record what they are told, for tests in Python.  Layer 1 (native)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t, uint32_t

from tisfast.native.gather_write cimport Outgoing
from tisfast.native.http2 cimport Field, Http2Client, Http2Server, Http2Session, constant_field, copied_field
from tisfast.native.http2_frames cimport FrameGate

cdef enum:
    FIELDS_MAX = 64


cdef class Stream:
    """A stream of either side: the body that is to go, and whether more may follow (`last` unset)."""

    cdef public int id
    cdef public bytes body
    cdef public bint last
    cdef size_t at

    def __init__(self, bytes body=b"", bint last=True):
        self.body, self.last = body, last

    def more(self, bytes body, bint last) -> None:
        """A further piece of the body."""
        self.body, self.at, self.last = body, 0, last


cdef class Recorder:
    """events: what a session was told; raising: an exception for each event that is to fail."""

    cdef public list events
    cdef public dict raising

    def __cinit__(self):
        self.events, self.raising = [], {}

    cdef int tell(self, tuple event) except -1:
        self.events.append(event)
        if event[0] in self.raising:
            raise self.raising[event[0]]
        return 0


cdef ssize_t room_of(Stream stream, size_t most, bint *end) except -1:
    cdef size_t left = len(stream.body) - stream.at
    end[0] = stream.last and left <= most
    return min(left, most)


cdef int take_from(Stream stream, Outgoing out, size_t n) except -1:
    out.add(PyBytes_AS_STRING(stream.body) + stream.at, n)
    out.keep(stream.body)
    stream.at += n
    return 0


cdef class RecordingServer(Http2Server):
    """Makes a Stream of each request.  Events: field, invalid, request, data, end, closed, ping, flood, goaway, sent."""

    cdef readonly Recorder told
    cdef public list made                # streams, in order
    cdef public bytes answer             # the body of each, when it is answered
    cdef list kept

    def __cinit__(self):
        self.told, self.made, self.kept = Recorder(), [], []
        self.answer = b""

    cdef int on_request_begins(self) except -1:
        return self.told.tell(("begins",))

    cdef int on_field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1:
        return self.told.tell(("field", name[:name_bytes], value[:value_bytes]))

    cdef void on_head_invalid(self) noexcept:
        self.told.events.append(("invalid",))

    cdef object on_request(self, int32_t stream_id):
        stream = Stream(self.answer)
        stream.id = stream_id
        self.made.append(stream)
        self.told.tell(("request", stream_id))
        return stream

    cdef int on_data(self, object stream, const uint8_t *data, size_t n) except -1:
        return self.told.tell(("data", (<Stream>stream).id, data[:n], self.data_stream, self.data_left))

    cdef int on_end(self, object stream) except -1:
        return self.told.tell(("end", (<Stream>stream).id))

    cdef int on_closed(self, object stream, uint32_t error_code) except -1:
        return self.told.tell(("closed", (<Stream>stream).id, error_code))

    cdef ssize_t on_room(self, object stream, size_t most, bint *end) except -1:
        if "room" in self.told.raising:
            raise self.told.raising["room"]
        return room_of(stream, most, end)

    cdef int on_take(self, object stream, Outgoing out, size_t n) except -1:
        if "take" in self.told.raising:
            raise self.told.raising["take"]
        return take_from(stream, out, n)

    cdef int on_ping(self, bint ack) except -1:
        return self.told.tell(("ping", ack))

    cdef int on_flood(self, bytes reason) except -1:
        return self.told.tell(("flood", reason))

    cdef int on_goaway(self, int32_t last_stream_id, uint32_t error_code) except -1:
        return self.told.tell(("goaway", last_stream_id, error_code))

    cdef int on_sent(self, bint carries, bint resets) except -1:
        return self.told.tell(("sent", carries, resets))

    def answers(self, int32_t stream_id, list fields, bint body) -> None:
        """The fields of a response.  The texts live as long as the session, and are not copied."""
        cdef Field raw[FIELDS_MAX]
        self.kept.append(fields)
        self.respond(stream_id, raw, fields_of(fields, raw, True), body)

    def trailers(self, int32_t stream_id, list fields) -> None:
        """Trailers, which end the response."""
        cdef Field raw[FIELDS_MAX]
        self.trail(stream_id, raw, fields_of(fields, raw, False))


cdef class RecordingClient(Http2Client):
    """Events: begins, field, response, data, end, closed, ping, goaway, sent."""

    cdef readonly Recorder told

    def __cinit__(self):
        self.told = Recorder()

    cdef int on_response_begins(self, object stream) except -1:
        return self.told.tell(("begins", (<Stream>stream).id))

    cdef int on_field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1:
        return self.told.tell(("field", name[:name_bytes], value[:value_bytes]))

    cdef int on_response(self, object stream) except -1:
        return self.told.tell(("response", (<Stream>stream).id))

    cdef int on_data(self, object stream, const uint8_t *data, size_t n) except -1:
        return self.told.tell(("data", (<Stream>stream).id, data[:n]))

    cdef int on_end(self, object stream) except -1:
        return self.told.tell(("end", (<Stream>stream).id))

    cdef int on_closed(self, object stream, uint32_t error_code) except -1:
        return self.told.tell(("closed", (<Stream>stream).id, error_code))

    cdef ssize_t on_room(self, object stream, size_t most, bint *end) except -1:
        return room_of(stream, most, end)

    cdef int on_take(self, object stream, Outgoing out, size_t n) except -1:
        return take_from(stream, out, n)

    cdef int on_ping(self, bint ack) except -1:
        return self.told.tell(("ping", ack))

    cdef int on_goaway(self, int32_t last_stream_id, uint32_t error_code) except -1:
        return self.told.tell(("goaway", last_stream_id, error_code))

    cdef int on_sent(self, bint carries, bint resets) except -1:
        return self.told.tell(("sent", carries, resets))

    def asks(self, list fields, Stream stream, bint body) -> int:
        """Begin a stream; its number."""
        cdef Field raw[FIELDS_MAX]
        stream.id = self.request(raw, fields_of(fields, raw, False), stream, body)
        return stream.id

    def most_streams(self) -> int:
        """That the server takes at one time."""
        return self.streams_max()


cdef class BareServer(Http2Server):
    """Overrides nothing."""


cdef class SilentServer(Http2Server):
    """Overrides what must be."""

    cdef object on_request(self, int32_t stream_id):
        return Stream()

    def answers(self, int32_t stream_id, list fields, bint body) -> None:
        """The fields of a response."""
        cdef Field raw[FIELDS_MAX]
        self.respond(stream_id, raw, fields_of(fields, raw, False), body)


cdef class SilentClient(Http2Client):
    """Overrides nothing, which a client need not."""

    def asks(self, list fields, Stream stream, bint body) -> int:
        """Begin a stream; its number."""
        cdef Field raw[FIELDS_MAX]
        return self.request(raw, fields_of(fields, raw, False), stream, body)


cdef int fields_of(list fields, Field *raw, bint constant) except -1:
    cdef bytes name, value
    cdef int n = 0
    if len(fields) > FIELDS_MAX:
        raise ValueError(f"{len(fields)} fields, {FIELDS_MAX} is the limit")
    for name, value in fields:
        raw[n] = (constant_field if constant else copied_field)(
            PyBytes_AS_STRING(name), len(name), PyBytes_AS_STRING(value), len(value))
        n += 1
    return n


def receive(Http2Session session, bytes data) -> int:
    """What came; less than 0: the connection must be closed."""
    return session.receive(<const uint8_t *>PyBytes_AS_STRING(data), len(data))


def gathered(Http2Session session) -> list:
    """The pieces of one gathered write, which is thereby written."""
    cdef int count = session.collect()
    cdef Outgoing out = session.out
    found = [PyBytes_FromStringAndSize(<char *>out.pieces[i].iov_base, out.pieces[i].iov_len) for i in range(count)]
    out.clear()
    return found


def outgoing(Http2Session session) -> bytes:
    """All that goes now."""
    found = []
    while written := gathered(session):
        found += written
    return b"".join(found)


def renew_out(Http2Session session) -> Outgoing:
    """Take its memory away; what it was."""
    cdef Outgoing kept = session.out
    session.renew_out()
    return kept


def open_streams(Http2Session session) -> list:
    """Numbers of the streams that are open."""
    return sorted(session.streams)


def gate(Http2Session session) -> FrameGate:
    """What a client's frames pass."""
    return session.gate


def over(Http2Session session) -> bool:
    """Whether neither side has anything to say."""
    return session.over()


def resume(Http2Session session, int32_t stream_id) -> None:
    """There is more of a body."""
    session.resume(stream_id)


def reset(Http2Session session, int32_t stream_id, uint32_t error_code) -> None:
    """End a stream."""
    session.reset(stream_id, error_code)


def consumed(Http2Session session, int32_t stream_id, size_t connection_bytes, size_t stream_bytes) -> None:
    """So many bytes may come again."""
    session.consumed(stream_id, connection_bytes, stream_bytes)


def ping(Http2Session session) -> None:
    """Ask for an acknowledgement."""
    session.ping()


def announce_shutdown(Http2Session session) -> None:
    """No more streams, soon."""
    session.announce_shutdown()


def go_away(Http2Session session, uint32_t error_code, bytes reason) -> None:
    """No more streams."""
    session.go_away(error_code, reason)
