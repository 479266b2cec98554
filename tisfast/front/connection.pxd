# One HTTP/1.1 client connection on uvloop.  Layer 4 (front).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.core cimport InferRequest, Reply
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.front.sender cimport Sender
from tisfast.native.memory cimport Block, View
from tisfast.native.region cimport Regions
from tisfast.wire.chunked cimport ChunkDecoder
from tisfast.wire.head cimport Head
from tisfast.wire.record cimport Answer
from tisfast.wire.respond cimport Body

cdef class FrontShared:
    """What all connections of one listener share."""
    cdef readonly object registry        # None: this listener serves no inference (metrics)
    cdef readonly object routes
    cdef readonly object loop
    cdef readonly uint64_t max_input_bytes
    cdef readonly Regions regions
    cdef readonly set connections
    cdef readonly bint draining
    cdef public object on_empty          # called when the last connection has gone
    cdef readonly int64_t tick           # seconds counted by the sweep: connections compare, no clock is read
    cdef uint64_t collected              # bytes of chunked bodies of all connections
    cdef bytearray receive               # heads arrive here; emptied before buffer_updated returns
    cdef unsigned char *receive_data
    cdef Body body                       # answers are rendered here, one at a time

cdef class Exchange(Reply):
    """One request of a connection and its answer, in the order of arrival."""
    cdef HttpConnection connection       # None once the client has gone
    cdef Head head
    cdef ModelRuntime runtime
    cdef InferRequest request            # while the engine has it
    cdef bint done, close_after, linger
    cdef Answer answer                   # one of these two is set when done
    cdef object response                 # routes.Response
    cdef int respond(self, object response) except -1

cdef class HttpConnection:
    cdef FrontShared shared
    cdef object transport
    cdef Sender sender
    cdef object exchanges                # deque of Exchange, oldest first
    cdef Head head                       # the last head and its parse
    cdef Head current                    # of the request whose body is being received, or None
    cdef int state
    cdef Py_ssize_t searched             # bytes of an incomplete head that hold no end
    cdef bytes pending                   # received and not yet parsed: a partial head, or pipelined requests
    cdef View view                       # aimed at what is to be received next
    cdef ModelRuntime runtime
    cdef Block block                     # body being received
    cdef bytearray body                  # body of a request without a block
    cdef uint64_t collected              # its bytes, as counted in shared.collected
    cdef ChunkDecoder chunks
    cdef uint64_t start, filled, total   # of the body: where in the block it starts, received, announced
    cdef bint paused, closing, parsing, lingering, continue_owed
    cdef Py_ssize_t unsent               # bytes the transport held at the last sweep
    cdef int64_t sent_tick               # when that last changed
    cdef int64_t head_tick                # when the head that is incomplete began to arrive
    cdef readonly int64_t touched_tick   # when a byte last arrived
    cdef int _process(self, const unsigned char *data, Py_ssize_t n) except -1
    cdef Py_ssize_t _on_head(self, const unsigned char *data, Py_ssize_t n) except -2
    cdef int _start_body(self) except -1
    cdef Py_ssize_t _on_body(self, const unsigned char *data, Py_ssize_t n) except -2
    cdef int _take_block(self, uint64_t nbytes) except -1
    cdef int _infer(self) except -1
    cdef int _request_complete(self) except -1
    cdef int _count_collected(self, uint64_t nbytes) except -1
    cdef object _drop_collected(self)
    cdef Exchange _open(self)
    cdef int _flush(self) except -1
    cdef int _refuse(self, object response, bint close) except -1
    cdef int _update_reading(self) except -1
    cdef int _parse_pending(self) except -1
    cdef bint _must_wait(self) noexcept
    cdef bint _is_infer(self) noexcept
    cdef Py_ssize_t _on_chunks(self, const unsigned char *data, Py_ssize_t n) except -2
    cdef uint64_t _collect_max(self)
