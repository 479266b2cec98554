"""Large transfers share the loop with small requests; see transfer_fairness.pxd.  Layer 4 (front).

A client on the same machine gives and takes 16 MB as fast as they are copied, and a small request beside it waits for that.
So no large transfer moves more than TURN_BYTES before the others have had their turn.  That costs its throughput some
percent, so it is done only while small requests gain: until large transfers have moved TURN_ALONE_BYTES with no small
request between them.  It is a count and not a time, so that small requests need not look at a clock.
"""

from libc.stdint cimport int64_t

from tisfast import tuning

cdef int64_t BYTES_MAX = tuning.TURN_ALONE_BYTES
cdef int64_t TURN_BYTES = tuning.TURN_BYTES
cdef int64_t WHOLE_BYTES = tuning.TURN_WHOLE_BYTES


cdef class TransferFairness:
    """One for all listeners of a process: they have one loop."""

    def __cinit__(self):
        self.moved = BYTES_MAX

    cdef void small_request(self) noexcept:
        self.moved = 0

    cdef int64_t turn(self, int64_t left) noexcept:
        return TURN_BYTES if left > WHOLE_BYTES and self.wanted() else left

    cdef bint wanted(self) noexcept:
        return self.moved < BYTES_MAX

    cdef void count(self, int64_t nbytes) noexcept:
        if self.moved < BYTES_MAX:
            self.moved += nbytes


SHARING = TransferFairness()
