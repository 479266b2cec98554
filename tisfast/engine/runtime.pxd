# One model version that can be asked for inferences.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.engine.caching_runtime cimport CachingRuntime
from tisfast.engine.core cimport InferRequest, Link
from tisfast.engine.instances cimport Instances
from tisfast.engine.rate_limiter cimport RateLimiter
from tisfast.engine.scheduler cimport Scheduler
from tisfast.engine.stats cimport FailureReason, ResponseKind, Times
from tisfast.wire.record cimport Answer

cdef class ModelRuntime(CachingRuntime):
    cdef readonly bint ready             # every instance is up and the model accepts requests
    cdef readonly str reason             # why not ready
    cdef public object timer_changed     # called with no arguments when next_timer_ns() may have become earlier
    cdef public object wanted            # None while the model is awake; else called with no arguments by each request
    cdef Scheduler scheduler
    cdef Instances instances
    cdef RateLimiter limiter             # None where nothing limits executions
    cdef str refusal                     # not None: new requests are refused with this text
    cdef bint ordered
    cdef uint64_t next_order, next_answer
    cdef dict held                       # preserve_ordering: by order, what waits for an earlier request's final answer
    cdef int64_t armed_ns
    # Links report here; `times` of the execution.
    cdef int complete(self, Link link, InferRequest request, Answer answer, Times *times) except -1
    cdef int complete_failed(self, Link link, InferRequest request, int status, str message, Times *times) except -1
    # The same of decoupled models, any number of times up to `final`.  status 0: answered, `answer` None only with `final`.
    cdef int respond(
        self, Link link, InferRequest request, Answer answer, int status, str message, bint final, Times *times) except -1
    # Executed without an answer: an iterative model wants the request again.
    cdef int reschedule(self, Link link, InferRequest request, Times *times) except -1
    # `execute` has returned for the oldest batch of a decoupled model's instance; `inferences`: of that batch.
    cdef int executed(self, Link link, uint32_t inferences, Times *times) except -1
    cdef int pump(self, int64_t now_ns) except -1
    # Hand a batch that the scheduler has formed to its instance.
    cdef int dispatch(self, Link link, list batch, int64_t now_ns) except -1
    # Put in the queue again, in order, what waits behind executions, and all that `leaving` (or None) has not begun.
    cdef int take_back_ahead(self, Link leaving, int64_t now_ns) except -1
    cdef list recalled(self, Link link, InferRequest like)
    cdef int queue_again(self, list requests) except -1
    cdef int share(self) except -1
    cdef int leave_batch(self, Link link, uint32_t closed) except -1
    # An execution is over that had answered some of its requests before.
    cdef int execution_over(self, Link link, Times *times) except -1
    cdef int count_execution(self, Link link, uint32_t inferences, Times *times) except -1
    cdef int leave_instance(self, Link link, InferRequest request, bint failed, Times *times) except -1
    cdef int take_back(self, InferRequest request) except -1
    cdef int leave_order(self, InferRequest request) except -1
    cdef int in_turn(self, uint64_t order, tuple said) except -1
    cdef int deliver(self, InferRequest request, Answer answer, int status, str message, bint final) except -1
    # Answer what the scheduler has handed back, each by its refusal; `counted`: they are among the pending ones.
    cdef int drop(self, list requests, bint counted) except -1
    cdef int reject_cancelled(self, InferRequest request) except -1
    cdef int reject(self, InferRequest request, int status, str message, FailureReason reason) except -1
    cdef int arm(self, int64_t now_ns) except -1
