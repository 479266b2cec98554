# What a ModelRuntime asks of the scheduler of its model.  Layer 3 (engine): pure, time comes in as numbers.
from libc.stdint cimport int64_t
from tisfast.engine.core cimport InferRequest, Link, RequestRefusal
from tisfast.engine.instances cimport Instances
from tisfast.engine.stats cimport FailureReason

# Why a request is not served, or no longer.
cdef RequestRefusal refusal(int status, str message, FailureReason reason)

cdef class Scheduler:
    """The requests of one model version that wait, and the choice of batch and instance.

    What it does not serve (any longer) it hands back with `request.refusal` set; the runtime answers it.
    """
    cdef readonly Py_ssize_t size        # live requests that wait here
    cdef int64_t soonest_ns              # `expire` has nothing to do before; 0: never has
    cdef readonly bint padded            # a request's `slot` is its place in the batch; links fill gaps with null requests
    cdef readonly bint iterative         # a request may be executed several times before its answer
    cdef readonly bint in_order          # what is taken back of an instance goes there before whatever followed it
    cdef Link target                     # whom the batch that next_batch returned is for

    # A new request.  False: refused.
    cdef bint add(self, InferRequest request, int64_t now_ns) except -1
    # How long it lets the request wait before it refuses it; 0: as long as it takes.
    cdef int64_t patience_ns(self, InferRequest request) except -1
    # Handed out, not begun, by age: they go first again.  Returns those that are refused now.
    cdef list put_back(self, list requests)
    # Something of what this instance has not begun would go to another one now.
    cdef bint may_move(self, Link link, Instances instances, int64_t now_ns) except -1
    # The client has left, or nobody is served any more: the request is answered by others.
    cdef int withdraw(self, InferRequest request) except -1
    # Time has passed: those that waited too long.
    cdef list expire(self, int64_t now_ns)
    # A batch that goes out now, to `target`; None when nobody can take one or it is better to wait.  All its requests have
    # left the queue.
    cdef list next_batch(self, Instances instances, int64_t now_ns)
    # When `expire` or next_batch want to be asked again though nothing happens; 0: not before something does.
    cdef int64_t next_event_ns(self, int64_t now_ns) noexcept
    cdef list queued_requests(self)
    # Sequences that are not over.
    cdef Py_ssize_t open_sequences(self)
    # An instance belongs to the model; it gets work while `up`.
    cdef int link_added(self, Link link) except -1
    # It gets nothing more but what only it can execute; what it had not begun has been put back.
    cdef int link_leaves(self, Link link) except -1
    # It does not any more.  Answers that it had given may still come in (`finished`); what it had taken is failed and what
    # it had not is put back, after this.  Returns queued requests that cannot be served without it.
    cdef list link_removed(self, Link link)
    # A dispatched request has its final answer, or none will come (`failed`; `link` is None when the instance died).
    cdef int finished(self, InferRequest request, Link link, bint failed) except -1
    # A decoupled model's `execute` has returned for the oldest batch of an instance.
    cdef int executed(self, Link link) except -1
    # A request of an iterative model was executed, and wants to be again.
    cdef int reschedule(self, InferRequest request) except -1
