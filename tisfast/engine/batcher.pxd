# The queue of one model version and the forming of its batches.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.engine.core cimport InferRequest

cdef class Batcher:
    cdef readonly bint dynamic
    cdef bint reject_late, may_override
    cdef uint32_t requests_max           # of one batch: never more than an instance's ring holds
    cdef uint32_t max_batch, preferred_max, preferred_min
    cdef frozenset preferred
    cdef int64_t delay_ns, timeout_ns
    cdef Py_ssize_t queue_max
    cdef object waiting, late            # deques of InferRequest; late: past their timeout, action DELAY
    cdef readonly Py_ssize_t size        # live requests in both
    cdef Py_ssize_t gone                 # entries whose request was withdrawn, skipped when met
    cdef uint64_t inferences             # sum of the batch sizes of `waiting`'s live requests
    cdef int64_t soonest_ns              # no queued request expires before; 0 none expires
    cdef int64_t batch_due_ns            # when the batch that is being waited for goes out, 0 none waits
    cdef bint limited                    # a timeout or queue bound is set: no prefetch (row 15.25)
    # False: the queue is full.
    cdef bint add(self, InferRequest request, int64_t now_ns) except -1
    cdef int put_back(self, list requests) except -1
    cdef int withdraw(self, InferRequest request) except -1
    # Requests whose time is up, taken out (REJECT), after moving those of action DELAY behind all others.
    cdef list expire(self, int64_t now_ns)
    # The next batch or None when it is better to wait; `idle`: for an instance with nothing to do.
    cdef list next_batch(self, int64_t now_ns, bint idle)
    cdef int64_t next_event_ns(self, int64_t now_ns) noexcept
    cdef InferRequest head(self, queue)
    cdef list _form(self, queue, int64_t now_ns, bint idle)
    cdef int _leave(self, InferRequest request) except -1
