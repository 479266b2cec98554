# One HTTP/1.1 client connection on uvloop.  Layer 4 (front).
from libc.stdint cimport int64_t, uint64_t
from tisfast.front.body_reader cimport BodyReader
from tisfast.front.exchange cimport Exchange, ConnectionFace
from tisfast.front.listener_context cimport ListenerContext
from tisfast.front.receive_watermark cimport ReceiveWatermark
from tisfast.front.socket_writer cimport SocketWriter
from tisfast.native.memory cimport BufferView
from tisfast.wire.head cimport Head
from tisfast.wire.http1 cimport Http1Server
from tisfast.wire.record cimport InferInput

cdef class HttpConnection(ConnectionFace):
    cdef ListenerContext shared
    cdef object transport
    cdef SocketWriter sender
    cdef ReceiveWatermark receiver
    cdef Http1Server session             # what comes passes it
    cdef BodyReader reader               # and becomes requests there
    cdef object exchanges                # deque of Exchange, oldest first
    cdef BufferView view                       # aimed at what is to be received next
    cdef Py_ssize_t offered              # bytes of it, or of what is shared
    cdef uint64_t lingered               # bytes that came while it lingers
    cdef bint closing, parsing, flushing, lingering, continue_owed
    cdef int64_t began_ns                # when the current head was there, while lines of the access log are wanted
    cdef uint64_t noted_bytes            # sender.sent_bytes when the last of these was noted
    cdef int64_t received_ns             # the same, read while there is a tracer
    cdef int64_t head_tick               # when the head that is incomplete began to arrive
    cdef readonly int64_t touched_tick   # when a byte last arrived
    cdef int _process(self, const unsigned char *data, Py_ssize_t n) except -1
    cdef int _take(self) except -1
    cdef int _on_head(self) except -1
    cdef int _refuse_unread(self, object response) except -1
    cdef int _send_ready(self) except -1
    cdef int _note(self, Exchange exchange, int status) except -1
    cdef int _update_reading(self) except -1
    cdef int _parse_rest(self) except -1
    cdef bint _must_wait(self) noexcept
    cdef Exchange _exchange_of(self, Head head)
