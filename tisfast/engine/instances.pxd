# The instances of one model version, as schedulers see them.  Layer 3 (engine).
from libc.stdint cimport uint32_t
from tisfast.engine.core cimport Link

cdef class Instances:
    cdef readonly list links
    cdef readonly bint decoupled
    cdef bint call_others           # some instance has called another model: what waits behind it might be what it waits for
    # Whether this instance may begin another execution now.  Always, unless a rate limiter says otherwise.
    cdef bint may_run(self, Link link) except -1
    # The instance with least to do, if it may take a batch of up to `requests` now, else None.  `idle`: it has nothing to
    # do.  prefetch: what is not idle may be given work, too; batches: a whole batch of it, not single requests.
    cdef Link least_busy(self, uint32_t requests, bint prefetch, bint batches, bint *idle)
    cdef Link _among_streams(self, uint32_t requests)
    cdef Link _by_requests(self)
