# One HTTP/2 session without a socket, over nghttp2.  Layer 1 (native): the only place that knows nghttp2.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from tisfast.native.gather_write cimport Outgoing
from tisfast.native.http2_frames cimport FrameGate
from tisfast.native.nghttp2 cimport nghttp2_session

cdef extern from "<nghttp2/nghttp2.h>":
    # Error codes of RFC 9113, 7.
    enum:
        NO_ERROR "NGHTTP2_NO_ERROR"
        PROTOCOL_ERROR "NGHTTP2_PROTOCOL_ERROR"
        INTERNAL_ERROR "NGHTTP2_INTERNAL_ERROR"
        REFUSED_STREAM "NGHTTP2_REFUSED_STREAM"
        CANCEL "NGHTTP2_CANCEL"
        ENHANCE_YOUR_CALM "NGHTTP2_ENHANCE_YOUR_CALM"

cdef struct Field:                       # laid out as nghttp2_nv
    uint8_t *name
    uint8_t *value
    size_t name_bytes
    size_t value_bytes
    uint8_t flags

# A field whose texts outlive the session (constants): nothing is copied.
cdef Field constant_field(const char *name, size_t name_bytes, const char *value, size_t value_bytes) noexcept
# A field whose value is copied.
cdef Field copied_field(const char *name, size_t name_bytes, const char *value, size_t value_bytes) noexcept

cdef class Http2Session:
    """Bytes in by `receive`, bytes out by `collect`; what happens is told to the methods that a subclass overrides.

    No override may call `receive` or `collect`.  Streams are the subclass's own objects; the session keeps each alive until
    `on_closed`.
    """
    cdef nghttp2_session *raw
    cdef bint client
    cdef dict streams                    # by stream id
    cdef FrameGate gate                  # what a client sends passes it
    cdef size_t fields_bytes             # of the header block that is coming, expanded
    cdef object failure                  # exception that an override raised
    cdef Outgoing out
    cdef bint collecting
    cdef int32_t data_stream             # of the DATA frame that is arriving
    cdef size_t data_left                # bytes of it, without padding, that have not come; 0: none, or padded
    # ---- told to the subclass
    cdef int on_field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1
    cdef void on_head_invalid(self) noexcept                 # a head that began is refused; nothing else comes of it
    cdef int on_data(self, object stream, const uint8_t *data, size_t n) except -1
    cdef int on_end(self, object stream) except -1           # the other side sends no more on it
    cdef int on_closed(self, object stream, uint32_t error_code) except -1
    # Bytes of the body that can go now, at most `most`; 0 without end[0]: none until `resume`.  end[0]: the body ends with them.
    cdef ssize_t on_room(self, object stream, size_t most, bint *end) except -1
    cdef int on_take(self, object stream, Outgoing out, size_t n) except -1    # these bytes, now
    cdef int on_ping(self, bint ack) except -1
    cdef int on_flood(self, bytes reason) except -1          # nothing that still comes is read: to be sent away
    cdef int on_goaway(self, int32_t last_stream_id, uint32_t error_code) except -1  # the other side takes no streams beyond
    cdef int on_sent(self, bint carries, bint resets) except -1  # carries: headers or data; resets: one stream, for an error
    # ---- called by the subclass
    # Returns 0, or less when the connection must be closed at once: its bytes are not HTTP/2.
    cdef int receive(self, const uint8_t *data, size_t n) except -2
    # Gathers frames into `out` until it is full or nothing is left; returns the pieces in it.
    cdef int collect(self) except -1
    # Takes `out` away: somebody else holds its memory from now on.
    cdef int renew_out(self) except -1
    cdef bint over(self) noexcept        # neither side has anything to say any more
    cdef int resume(self, int32_t stream_id) except -1
    cdef int reset(self, int32_t stream_id, uint32_t error_code) except -1
    cdef int consumed(self, int32_t stream_id, size_t connection_bytes, size_t stream_bytes) except -1
    cdef int ping(self) except -1
    cdef int announce_shutdown(self) except -1       # streams that are on their way still come
    # No more streams; those that are open go on.
    cdef int go_away(self, uint32_t error_code, bytes reason) except -1
    # ---- how the two sides differ
    cdef int on_head_begins(self, int32_t stream_id) except -1
    cdef int on_head(self, int32_t stream_id) except -1
    cdef int _begin(self, bint client) except -1
    cdef int _settle(self, ssize_t code) except -2

cdef class Http2Server(Http2Session):
    """Requests come; the subclass makes a stream of each."""
    cdef int on_request_begins(self) except -1
    cdef object on_request(self, int32_t stream_id)          # the fields are complete; returns the stream's object
    cdef int respond(self, int32_t stream_id, const Field *fields, int n, bint body) except -1
    cdef int trail(self, int32_t stream_id, const Field *fields, int n) except -1

cdef class Http2Client(Http2Session):
    """Requests go.  A stream that the server refuses is closed with REFUSED_STREAM; so are those beyond its GOAWAY."""
    # Begins a stream; its body is what `on_room` and `on_take` give.  More than the server takes at one time wait here.
    cdef int32_t request(self, const Field *fields, int n, object stream, bint body) except -1
    cdef uint32_t streams_max(self) noexcept                 # that the server takes at one time
    # Fields come of a response, an interim one (:status below 200), or its trailers (no :status); then they are complete.
    cdef int on_response_begins(self, object stream) except -1
    cdef int on_response(self, object stream) except -1
