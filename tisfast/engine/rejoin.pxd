# Waiting for the clients of the batch that was just answered.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t
from tisfast.engine.core cimport InferRequest, Link

cdef class Rejoin:
    cdef int64_t done_ns                 # when the last batch was ready; 0: nobody is waited for
    cdef int64_t window_ns               # how long after that its clients are waited for
    cdef uint32_t expected, returned     # requests of that batch; arrived since
    cdef int vain                        # waits in a row that brought too few
    cdef void answered(self, InferRequest request, Link link) noexcept
    cdef void arrived(self, int64_t now_ns) noexcept
    # Until when a batch that is not full had better wait; 0: it goes now.
    cdef int64_t wait_until(self, int64_t now_ns) noexcept
