# The requests of one priority level under its queue policy.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.core cimport InferRequest

cdef class PolicyQueue:
    """settings: config.scheduler_settings.QueuePolicy.  In its order: by arrival, and behind them those that are late (DELAY)."""
    cdef readonly uint64_t level
    cdef readonly Py_ssize_t size        # live requests
    cdef object waiting, late            # deques of InferRequest; entries whose request was withdrawn are skipped when met
    cdef int64_t soonest_ns              # no request of `waiting` expires before; 0: none does
    cdef bint reject_late, may_override
    cdef bint in_order                   # of expiry, too
    cdef int64_t timeout_ns, rest_until_ns
    cdef Py_ssize_t size_max, gone
    # False: the queue is full.
    # The timeout of a request, 0 for none.
    cdef int64_t patience_ns(self, InferRequest request) noexcept
    cdef bint add(self, InferRequest request, int64_t now_ns) except -1
    cdef int put_back(self, InferRequest request) except -1
    cdef int withdraw(self, InferRequest request) except -1
    # The same, and nothing here names it any more: it may come again.
    cdef int remove(self, InferRequest request) except -1
    # Takes the first live request, which must be `request`, out.
    cdef int pop(self, InferRequest request) except -1
    cdef InferRequest head(self)
    # Those whose time is up: appended to `rejected`, or moved behind all others.
    cdef int expire(self, int64_t now_ns, list rejected) except -1
    cdef list live(self)
    cdef void _expect(self, int64_t expires_ns) noexcept
    cdef int _is_late(self, InferRequest request, list rejected) except -1
    cdef int _expire_first(self, int64_t now_ns, list rejected) except -1
    cdef int _expire_any(self, int64_t now_ns, list rejected) except -1
