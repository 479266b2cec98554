# The queue of one model version and the forming of its batches.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.engine.core cimport InferRequest
from tisfast.engine.rejoin cimport Rejoin
from tisfast.engine.scheduler cimport Scheduler

cdef class Batcher(Scheduler):
    cdef readonly bint dynamic
    cdef bint reject_late, may_override
    cdef uint32_t requests_max           # of one batch: never more than an instance's ring holds
    cdef uint32_t max_batch, preferred_max, preferred_min
    cdef frozenset preferred
    cdef int64_t delay_ns, timeout_ns
    cdef Py_ssize_t queue_max
    cdef object waiting, late            # deques of InferRequest; late: past their timeout, action DELAY
    cdef Py_ssize_t gone                 # entries whose request was withdrawn, skipped when met
    cdef uint64_t inferences             # sum of the batch sizes of `waiting`'s live requests
    cdef int64_t batch_due_ns            # when the batch that is being waited for goes out, 0 none waits
    cdef Rejoin rejoin                   # None where requests run alone
    cdef bint limited                    # a timeout or queue bound is set: no prefetch (row 15.25)
    # What is to go now, for an instance that is idle or has a batch to execute; None when it is better to wait.
    cdef list choose(self, int64_t now_ns, bint idle)
    cdef InferRequest head(self, queue)
    cdef list _form(self, queue, int64_t now_ns, bint idle)
    cdef int _leave(self, InferRequest request) except -1
