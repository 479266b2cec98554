# The instances of one model version, as schedulers see them.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t
from tisfast.engine.core cimport Link

cdef class Instances:
    cdef readonly list links
    cdef readonly bint decoupled, batches
    cdef int64_t wait_ns_max        # nothing waits longer behind one execution, where there are several instances
    cdef bint call_others           # some instance has called another model: what waits behind it might be what it waits for
    # Whether this instance may begin another execution now.  Always, unless a rate limiter says otherwise.
    cdef bint may_run(self, Link link) except -1
    # The instance with least to do, if it may take a batch of up to `requests` now, else None.  `idle`: it has nothing to
    # do.  prefetch: what is not idle may be given work, too.
    cdef Link least_busy(self, uint32_t requests, bint prefetch, int64_t now_ns, bint *idle)
    # Whether a busy instance may be given so many requests more.
    cdef bint may_wait(self, Link link, uint32_t work, uint32_t requests, int64_t now_ns) noexcept
    # Its execution takes so long that nothing is to wait behind it.
    cdef bint is_late(self, Link link, int64_t now_ns) noexcept
    # Some instance has more than it executes, while another one has nothing to do or while its execution is late.
    cdef bint uneven(self, int64_t now_ns) noexcept
