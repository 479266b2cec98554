# The scheduler of models whose requests belong to sequences.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.core cimport InferRequest, Link
from tisfast.engine.instances cimport Instances
from tisfast.engine.scheduler cimport Scheduler
from tisfast.engine.sequence_slots cimport InstanceSlots, Sequence
from tisfast.engine.stats cimport FailureReason

cdef class SequenceScheduler(Scheduler):
    cdef object settings                 # config.scheduler_settings.SchedulerSettings
    cdef readonly object live            # id -> Sequence that takes further requests; the longest without one first
    cdef readonly object backlog         # deque of Sequence that no instance has room for yet, FIFO
    cdef readonly object lost            # id -> instance that died with the sequence, oldest first; bounded
    cdef list all_slots                  # of InstanceSlots, one for each instance
    cdef list condemned                  # requests that are handed back at the next look (expire)
    cdef bint decoupled, oldest
    cdef bint hold                       # nothing goes out yet: a test wants to see many requests together
    cdef int wanted_dtype                # of the tensor in which the model wants the id, 0: it has none
    cdef str wanted_name
    cdef int64_t idle_ns                 # a sequence without a request for so long is over
    cdef int64_t due_ns                  # when a batch that is being waited for goes out, 0 none is
    cdef int64_t backlog_soonest_ns      # no sequence of the backlog expires before; 0: none does
    cdef int64_t warned_ns
    cdef uint64_t conflicts              # sequences that began before their end, not told of yet
    cdef uint64_t next_id                # of an iterative request that has none
    cdef bint _check(self, InferRequest request) except -1
    cdef bint _name(self, InferRequest request) except -1
    cdef bint _refuse(self, InferRequest request, int status, str message, FailureReason reason) except -1
    cdef Sequence _begin(self, InferRequest request)
    cdef int _append(self, Sequence sequence, InferRequest request, int64_t now_ns) except -1
    cdef int _note_timeout(self, Sequence sequence, InferRequest request) except -1
    cdef void _wake_at(self, int64_t due_ns) noexcept
    cdef int _fill(self) except -1
    # Where a sequence that waits behind what the instance of these slots executes would go at once, or None.
    cdef InstanceSlots _better(self, InstanceSlots slots, Instances instances, int64_t now_ns)
    cdef int _spread(self, Instances instances, int64_t now_ns) except -1
    cdef int _move_fresh(self, InstanceSlots slots, InstanceSlots target) except -1
    cdef int _advance(self, Sequence sequence) except -1
    cdef int _close(self, Sequence sequence) except -1
    cdef InstanceSlots _slots_of(self, Link link)
    cdef bint _held_long_enough(self) except -1
    cdef bint _may_take(self, InstanceSlots slots, bint *idle) except -1
    cdef int _began(self, Sequence sequence) except -1
    cdef int _settle(self, Sequence sequence) except -1
    cdef int _cut(self, Sequence sequence, Py_ssize_t start) except -1
    cdef int _condemn(self, InferRequest request, int status, str message, FailureReason reason) except -1
    cdef int _end_idle(self, int64_t now_ns) except -1
    cdef int _expire_backlog(self, int64_t now_ns) except -1
    cdef int _come_back(self, Sequence sequence) except -1
    cdef int _return(self, list sequences) except -1
    cdef int _lose(self, Sequence sequence) except -1
