# Whether large transfers share the loop with small requests.  Layer 4 (front).
cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class TransferFairness:
    cdef int64_t moved                                # by large transfers since the last small request
    cdef void small_request(self) noexcept
    # Bytes that a transfer of which so many are left may move in this turn of the loop.
    cdef int64_t turn(self, int64_t left) noexcept
    cdef bint wanted(self) noexcept                   # small requests come
    cdef void count(self, int64_t nbytes) noexcept    # a large transfer moved so many
