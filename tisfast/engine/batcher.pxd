# Default scheduler and dynamic batcher: who of those that wait goes out next, and together with whom.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.engine.core cimport InferRequest
from tisfast.engine.policy_queue cimport PolicyQueue
from tisfast.engine.rejoin cimport Rejoin
from tisfast.engine.scheduler cimport Scheduler

cdef struct Forming:             # a batch that is being put together
    uint32_t total               # inferences
    uint32_t best_total          # of the largest preferred size met, and the requests of it; 0: none met
    Py_ssize_t best
    int64_t oldest_ns            # when the first of them was queued
    int64_t now_ns
    bint closed                  # nothing can be added

cdef class Batcher(Scheduler):
    cdef readonly bint dynamic
    cdef uint32_t requests_max           # of one batch: never more than an instance's ring holds
    cdef uint32_t max_batch, preferred_max, preferred_min
    cdef frozenset preferred
    cdef int64_t delay_ns
    cdef list levels                     # PolicyQueues by falling priority; without any request only `only`
    cdef PolicyQueue only                # where there are no priorities, else None
    cdef dict known                      # those in `levels`, by level
    cdef uint64_t level_max, level_default
    cdef object policies                 # of levels
    cdef Py_ssize_t size_max             # of all levels together
    cdef uint64_t inferences             # sum of the batch sizes of all that wait
    cdef bint alike                      # all requests so far may share a batch, whatever their shapes and inputs
    cdef Py_ssize_t hold                 # nothing goes out before so many requests wait; 0: no longer
    cdef int64_t batch_due_ns            # when the batch that is being waited for goes out, 0 none waits
    cdef object strategy                 # batching_strategy.Strategy or None
    cdef Rejoin rejoin                   # None where requests run alone
    cdef bint limited                    # a timeout, bound or priority is set: no prefetch
    # As `withdraw`, of a request that may be queued again, here or elsewhere.
    cdef int remove(self, InferRequest request) except -1
    cdef PolicyQueue _level(self, uint64_t priority)
    cdef int _emptied(self, PolicyQueue level) except -1
    cdef int _note_soonest(self) except -1
    # What is to go now, for an instance that is idle or has a batch to execute; None when it is better to wait.
    cdef list choose(self, int64_t now_ns, bint idle)
    cdef list _form(self, int64_t now_ns, bint idle)
    cdef bint _outgrows(self, InferRequest request, Forming *form) noexcept
    # A custom strategy's word on whether `request` joins the batch that `first` began.
    cdef bint _joins(self, InferRequest request, InferRequest first) except -1
    cdef bint _gather(self, queue, list batch, Forming *form) except -1
    cdef Py_ssize_t _ripe(self, Py_ssize_t count, Forming *form, int64_t now_ns, bint idle) except -1
    cdef int _leave(self, InferRequest request) except -1
