# One HTTP/1.1 client connection on uvloop.  Layer 4 (front).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.served cimport Runtime
from tisfast.front.collector cimport Collector
from tisfast.front.exchange cimport Exchange, Turns
from tisfast.front.receiver cimport Receiver
from tisfast.front.sender cimport Sender
from tisfast.front.shared cimport FrontShared
from tisfast.native.memory cimport Block, View
from tisfast.native.region cimport Regions
from tisfast.wire.head cimport Head
from tisfast.wire.record cimport InferInput

cdef class HttpConnection(Turns):
    cdef FrontShared shared
    cdef object transport
    cdef Sender sender
    cdef Receiver receiver
    cdef object exchanges                # deque of Exchange, oldest first
    cdef Head head                       # the last head and its parse
    cdef object verdict                  # of the policy about that head, None without a policy
    cdef Head current                    # of the request whose body is being received, or None
    cdef int state
    cdef Py_ssize_t searched             # bytes of an incomplete head that hold no end
    cdef bytes pending                   # received and not yet parsed: a partial head, or pipelined requests
    cdef View view                       # aimed at what is to be received next
    cdef Runtime runtime                 # of the request whose body is being received, or None
    cdef Block block                     # body being received
    cdef Collector collector             # of bodies without a block
    cdef uint64_t input_max              # bytes of the current request's body, unless it goes to an arena as it is
    cdef uint64_t start, filled, total   # of the body: where in the block it starts, received, announced
    cdef bint closing, parsing, flushing, lingering, continue_owed
    cdef int64_t received_ns             # when the current head was there; read while there is a tracer
    cdef int64_t head_tick                # when the head that is incomplete began to arrive
    cdef readonly int64_t touched_tick   # when a byte last arrived
    cdef int _process(self, const unsigned char *data, Py_ssize_t n) except -1
    cdef Py_ssize_t _on_head(self, const unsigned char *data, Py_ssize_t n) except -2
    cdef int _start_body(self) except -1
    cdef Py_ssize_t _on_body(self, const unsigned char *data, Py_ssize_t n) except -2
    cdef bint _fill_block(self, Py_ssize_t n) except -1
    cdef int _take_block(self, uint64_t nbytes) except -1
    cdef int _infer(self) except -1
    cdef int _request_complete(self) except -1
    cdef int _generate(self, bytes text) except -1
    cdef int _submit(self, Exchange exchange, Runtime runtime, InferInput input) except -1
    cdef Exchange _open(self)
    cdef object _sample(self, InferInput input)
    cdef Exchange _exchange_of(self, Head head)
    cdef int _refuse_unread(self, object response) except -1
    cdef int _send_ready(self) except -1
    cdef int _refuse(self, object response, bint close) except -1
    cdef int _update_reading(self) except -1
    cdef int _parse_pending(self) except -1
    cdef bint _must_wait(self) noexcept
    cdef bint _is_infer(self) noexcept
    cdef Py_ssize_t _on_collected(self, const unsigned char *data, Py_ssize_t n) except -2
    cdef uint64_t _collect_max(self)
