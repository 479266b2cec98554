# Sequences, and the slots of an instance that they have.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t
from tisfast.engine.batcher cimport Batcher
from tisfast.engine.core cimport InferRequest, Link

cdef enum Place:
    NEW          # its first request is only just here
    WAITS        # in the backlog: no instance has room for it yet
    SEATED       # has a slot of an instance
    LEFT         # its last request has gone, or was cancelled; its slot may be another's
    DOUBTFUL     # its instance died, and nobody has said yet whether it had taken a request of it
    LOST         # its instance died, and its state with it

cdef class Sequence:
    """Requests that belong together, in order."""
    cdef readonly object id              # int or str
    cdef readonly object waiting         # deque of InferRequest that are queued here, all of them live
    cdef InstanceSlots slots             # where it has, or had, its slot
    cdef readonly uint32_t slot
    cdef Place place
    cdef uint32_t out                    # its requests at the instance
    cdef bint closed                     # takes no further request
    cdef bint begun                      # the instance has taken a request of it: its state is there
    cdef bint counted                    # counted in its slots' `with_work`
    cdef int64_t idle_since_ns           # when its last request came; later when it was not idle then
    cdef int64_t expires_ns              # in the backlog: when the first timeout of its requests is over, 0 never

cdef class InstanceSlots:
    """The slots of one instance, and what goes there next."""
    cdef readonly Link link
    cdef readonly list seats             # Sequence or None, by slot; as long as the highest slot that was ever taken
    cdef readonly bint alive             # its instance is
    cdef bint leaving                    # its instance gets no new sequence
    cdef readonly dict fresh             # the sequences that sit here and have not begun, by when they came: keys
    cdef bint fresh_ahead                # the last batch has the first request of a sequence
    cdef uint32_t size
    cdef list free                       # heap of slots in `seats` that nobody has
    cdef object executing                # deque of lists: slots of the batches that a decoupled model executes
    cdef int64_t due_ns                  # when the batch that is being waited for goes out, 0 none is
    cdef Py_ssize_t taken(self) noexcept  # slots
    # The lowest free slot, -1 when there is none.
    cdef int64_t lowest(self) noexcept
    # A sequence takes a slot that nobody has, or gives it back.
    cdef int sit(self, Sequence sequence, uint32_t slot) except -1
    cdef int leave(self, Sequence sequence) except -1
    # A sequence of which nothing is at the instance gives its slot back, and takes along what waits.
    cdef int unseat(self, Sequence sequence) except -1
    # A request that was handed out and is not begun is the next of its slot again.
    cdef int put_back(self, Sequence sequence, InferRequest request) except -1
    # `waiting` of a sequence that sits here has changed, or its slot has become quiet.
    cdef int changed(self, Sequence sequence) except -1
    # Nothing of this slot is on its way, so that another sequence may have it.
    cdef bint quiet(self, uint32_t slot)
    # The request of this slot is done with: answered, or of a decoupled model executed.
    cdef int done(self, uint32_t slot) except -1
    # A request that is queued here and in no sequence's `waiting` is not to go.
    cdef int drop(self, InferRequest request, uint32_t slot) except -1
    # All such requests.
    cdef list issued(self)
    # Whether there is anything that could go, and how many requests of the ring it may take.
    cdef bint ready(self) noexcept
    cdef uint32_t requests_max(self) noexcept
    # What goes out now, or None; `idle`: the instance has nothing to do.
    cdef list form(self, int64_t now_ns, bint idle)

cdef class DirectSlots(InstanceSlots):
    cdef Py_ssize_t with_work            # sequences that have requests waiting
    cdef int64_t delay_ns
    cdef float utilization_min
    cdef bint mixed                      # requests of different shapes have met here
    cdef InferRequest _oldest(self)
    cdef bytes _oldest_shape(self)

cdef class OldestSlots(InstanceSlots):
    cdef Batcher batcher
    cdef list flying                     # by slot: the request of it that is issued or executing, else None
