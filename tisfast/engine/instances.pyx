"""Which instance is given the next batch, and how much may wait behind what one executes.  Layer 3 (engine).

Work is handed ahead to a busy instance only as far as that gains more than it costs: with short executions, of which the
way between server and worker is a part.  Where there are several instances it does not wait behind a long execution, and
what waits behind one that turns out to be long, or while another instance has nothing to do, is taken back
(ModelRuntime.take_back_ahead).
"""

from libc.stdint cimport int64_t, uint32_t

from tisfast.tuning import BATCH_PREFETCH_NS as _BATCH_PREFETCH_NS
from tisfast.limits import OUTSTANDING_REQUESTS_MAX as _OUTSTANDING_REQUESTS_MAX
from tisfast.tuning import PREFETCH_NS as _PREFETCH_NS
from tisfast.tuning import PREFETCH_REQUESTS_MAX as _PREFETCH_REQUESTS_MAX

cdef int64_t PREFETCH_NS = _PREFETCH_NS
cdef int64_t BATCH_PREFETCH_NS = _BATCH_PREFETCH_NS
cdef int64_t PREFETCH_REQUESTS_MAX = _PREFETCH_REQUESTS_MAX
cdef uint32_t OUTSTANDING_REQUESTS_MAX = _OUTSTANDING_REQUESTS_MAX


cdef class Instances:
    """The links of a model version.

    decoupled: requests stay open after `execute` has returned; batches: whole batches are handed out, not single requests.
    """

    def __cinit__(self, bint decoupled, bint batches):
        self.links = []
        self.decoupled = decoupled
        self.batches = batches
        self.wait_ns_max = BATCH_PREFETCH_NS if batches else PREFETCH_NS

    cdef bint may_run(self, Link link) except -1:
        return link.claim is None or link.claim.may_run()

    cdef Link least_busy(self, uint32_t requests, bint prefetch, int64_t now_ns, bint *idle):
        cdef Link link, best = None
        cdef uint32_t work, least = 0
        for link in self.links:
            if not link.up:
                continue
            work = link.batches if self.decoupled else link.inflight
            if best is not None and (work > least or work == least and link.inflight >= best.inflight):
                continue
            if self.decoupled and link.inflight + requests > OUTSTANDING_REQUESTS_MAX:
                continue
            if link.crowded and link.room() < requests:
                continue
            if work and not (prefetch and self.may_wait(link, work, requests, now_ns)):
                continue
            if self.may_run(link):
                best, least = link, work
        idle[0] = best is not None and least == 0
        return best

    cdef bint may_wait(self, Link link, uint32_t work, uint32_t requests, int64_t now_ns) noexcept:
        cdef int64_t ahead = 1
        cdef bint alone = len(self.links) == 1
        if self.call_others or link.room() < requests or not alone and self.is_late(link, now_ns):
            return False
        if self.batches:
            return link.batches < 2 and (alone or link.execution_ns <= BATCH_PREFETCH_NS)
        if link.execution_ns:
            ahead = min(PREFETCH_NS // link.execution_ns, PREFETCH_REQUESTS_MAX)
        return work <= max(ahead, alone)

    cdef bint is_late(self, Link link, int64_t now_ns) noexcept:
        return now_ns - link.progress_ns > self.wait_ns_max

    cdef bint uneven(self, int64_t now_ns) noexcept:
        cdef Link link
        cdef bint idle = False, ahead = False
        for link in self.links:
            if link.batches > 1:
                ahead = True
                idle |= self.is_late(link, now_ns)
            elif link.up and (link.batches if self.decoupled else link.inflight) == 0:
                idle = True
        return idle and ahead
