"""Waiting for the clients of the batch that was just answered.  Layer 3 (engine).

Clients that ask again as soon as they are answered fall into two groups, one waiting while the other executes, and each
waits for two executions where one would do.  So an instance that becomes idle, with too few requests for a full batch,
waits a little for those whose answers have just left: an eighth of the time that an execution takes, at most
BATCH_REJOIN_NS_MAX, and no longer than until as many have come as were answered.  Where that brings too few
(BATCH_REJOIN_VAIN_MAX times in a row less than half), it is not tried again until they would have come in time.

One client alone is never waited for: it is the first to come and the last.
"""

from tisfast import tuning

cdef int64_t EXECUTION_NS_MIN = tuning.BATCH_REJOIN_EXECUTION_NS_MIN
cdef int64_t WINDOW_NS_MAX = tuning.BATCH_REJOIN_NS_MAX
cdef int VAIN_MAX = tuning.BATCH_REJOIN_VAIN_MAX
cdef int PART = 8  # of an execution that the wait may take: what it costs at worst; it can save a whole one


cdef class Rejoin:
    """The state of one model version."""

    cdef void answered(self, InferRequest request, Link link) noexcept:
        if request.times.done_ns != self.done_ns:
            self.done_ns = request.times.done_ns
            self.expected = self.returned = 0
            self.window_ns = 0
            if link is not None and link.execution_ns >= EXECUTION_NS_MIN:
                self.window_ns = min(link.execution_ns // PART, WINDOW_NS_MAX)
        self.expected += 1

    cdef void arrived(self, int64_t now_ns) noexcept:
        self.returned += 1
        if self.returned == self.expected and now_ns - self.done_ns < self.window_ns:
            self.vain = 0

    cdef int64_t wait_until(self, int64_t now_ns) noexcept:
        cdef int64_t until = self.done_ns + self.window_ns
        if self.window_ns == 0 or self.vain >= VAIN_MAX:
            return 0
        if now_ns < until and self.returned < self.expected:
            return until
        if self.returned * 2 < self.expected:
            self.vain += 1
        else:
            self.vain = 0
        self.window_ns = 0  # decided, for this batch
        return 0
