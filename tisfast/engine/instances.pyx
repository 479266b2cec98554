"""Which instance is given the next batch.  Layer 3 (engine)."""

from libc.stdint cimport int64_t, uint32_t

from tisfast.limits import OUTSTANDING_REQUESTS_MAX as _OUTSTANDING_REQUESTS_MAX
from tisfast.limits import PREFETCH_NS as _PREFETCH_NS
from tisfast.limits import PREFETCH_REQUESTS_MAX as _PREFETCH_REQUESTS_MAX

cdef int64_t PREFETCH_NS = _PREFETCH_NS
cdef int64_t PREFETCH_REQUESTS_MAX = _PREFETCH_REQUESTS_MAX
cdef uint32_t OUTSTANDING_REQUESTS_MAX = _OUTSTANDING_REQUESTS_MAX


cdef inline uint32_t _depth(Link link) noexcept:
    """Requests that may be at an instance: one running, and so many behind it that they wait PREFETCH_NS at most."""
    if link.execution_ns == 0:
        return 2
    return <uint32_t>(1 + min(max(PREFETCH_NS // (link.execution_ns + 1), 1), PREFETCH_REQUESTS_MAX))


cdef class Instances:
    """The links of a model version; decoupled: requests stay open after `execute` has returned."""

    def __cinit__(self, bint decoupled):
        self.links = []
        self.decoupled = decoupled

    cdef bint may_run(self, Link link) except -1:
        return link.claim is None or link.claim.may_run()

    cdef Link least_busy(self, uint32_t requests, bint prefetch, bint batches, bint *idle):
        cdef Link best = self._among_streams(requests) if self.decoupled else self._by_requests()
        cdef uint32_t work
        if best is None:
            return None
        work = best.batches if self.decoupled else best.inflight
        idle[0] = work == 0
        if idle[0]:
            return best
        if not prefetch or self.call_others or best.room() < requests:
            return None
        if batches:
            return best if best.batches < 2 else None
        return best if work < _depth(best) else None

    cdef Link _by_requests(self):
        cdef Link link, best = None
        for link in self.links:
            if link.up and (best is None or link.inflight < best.inflight) and self.may_run(link):
                best = link
        return best

    cdef Link _among_streams(self, uint32_t requests):
        """Where requests stay open after `execute` has returned, what keeps an instance busy is executions."""
        cdef Link link, best = None
        for link in self.links:
            if not link.up or link.inflight + requests > OUTSTANDING_REQUESTS_MAX:
                continue
            if (best is None or link.batches < best.batches or (
                    link.batches == best.batches and link.inflight < best.inflight)) and self.may_run(link):
                best = link
        return best
