# The head of a call, field by field as HPACK gives them.  Layer 4 (front).
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum Method:
    OTHER = 0
    MODEL_INFER = 1
    MODEL_STREAM_INFER = 2

cdef class CallHead:
    """The fields of the call whose head is arriving: there is one at a time on a connection."""
    cdef Method method
    cdef str path                        # of OTHER
    cdef bint is_post, is_grpc, wants_status   # wants_status: triton_grpc_error
    cdef int64_t timeout_ns              # -1: none
    cdef bytes encoding                  # grpc-encoding; None: identity
    cdef int accepts                     # bits 1 << message.Coding
    cdef dict metadata                   # str to str; None for inferences unless `keep`
    cdef uint64_t nbytes                 # as RFC 9113, 6.5.2 counts
    cdef bint keep
    cdef int begin(self, bint keep) except -1
    cdef int field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1
    cdef int _path(self, const uint8_t *value, size_t n) except -1

# Nanoseconds of a grpc-timeout; -1 when it is none.
cdef int64_t timeout_ns(const uint8_t *value, size_t n) noexcept
# A grpc-message: percent-encoded UTF-8.
cdef bytes message_text(str message)
