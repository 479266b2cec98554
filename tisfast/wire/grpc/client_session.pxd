# One gRPC connection of a client without a socket: calls go, answers come.  Layer 2 (wire).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from tisfast.native.gather_write cimport Outgoing
from tisfast.native.http2 cimport Http2Client

cdef class OutPart:
    """Bytes on their way out, where they lie."""
    cdef object owner
    cdef const unsigned char *data
    cdef size_t nbytes

cdef class GrpcCall:
    """One call: messages out, messages in, one status at the end."""
    cdef readonly int32_t id
    cdef readonly str path
    cdef readonly dict metadata          # of the response's head, str to str; None before it has come
    cdef readonly dict trailers          # None before they have come
    cdef readonly int code               # gRPC status, -1 while the call goes on
    cdef readonly str text
    cdef str encoding                    # of the messages that are sent, "" for none
    cdef object parts                    # deque of OutPart
    cdef size_t waiting                  # bytes of them
    cdef bint half_closed                # nothing is added to them any more
    cdef bint deferred                   # the session was told that there is nothing to send
    cdef dict fields                     # of the header block that is coming
    cdef readonly int http_status        # 0 before it has come
    cdef uint8_t prefix[5]
    cdef int prefix_bytes
    cdef uint64_t total, filled          # of the message that is arriving
    cdef object body                     # of it: a BytesIO, or None
    cdef bint paced                      # who reads its messages says so (`taken`), and the server waits for that
    cdef uint64_t unread                 # bytes of whole messages that are not taken
    cdef uint64_t withheld               # bytes of the flow-control window that are not given back yet

cdef class GrpcClientSession(Http2Client):
    cdef readonly bint leaving           # the server takes no further calls
    cdef bytes authority, scheme, user_agent
    cdef uint64_t message_max
    cdef list events
    cdef GrpcCall heading                # whose header block is coming
    cdef list _told(self)
    cdef int _add(self, GrpcCall call, object message) except -1
    cdef int _flow(self, GrpcCall call) except -1
    cdef int _on_prefix(self, GrpcCall call) except -1
    cdef int _on_message(self, GrpcCall call, bytes message) except -1
    cdef int _conclude(self, GrpcCall call) except -1
    cdef int _finish(self, GrpcCall call, int code, str text) except -1
    cdef int _fail(self, GrpcCall call, int code, str text) except -1
