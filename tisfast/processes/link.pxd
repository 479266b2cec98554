# The engine's Link over one worker's rings, and the loop's watch over all of them.  Layer 4 (processes).
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.engine.core cimport Clock, InferRequest, Link
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.native.channel cimport Bell, Cells, Channel, tf_complete_slot
from tisfast.native.memory cimport Arena, Block, MemoryFile
from tisfast.processes.shares cimport ShareTable
from tisfast.wire.record cimport InferInput

cdef class RingLink(Link)

cdef class Poller:
    cdef readonly Bell bell
    cdef readonly Cells cells    # of custom metrics
    cdef Clock clock
    cdef object loop, turn
    cdef set busy                # links with requests or retained inputs out
    cdef set callers             # links whose models call others: these may speak at any time
    cdef readonly bint scheduled # it looks at the rings in the loop's next turn, and nobody needs to ring
    cdef int64_t active_ns, spin_ns
    cdef uint32_t vain_for_answers    # waits that were longer than spin_ns, less those that were not, with requests out
    cdef uint32_t vain_for_requests   # the same with nothing to do
    cdef int nudge(self) except -1
    cdef int wake(self) except -1
    cdef int look(self) except -1
    cdef int _schedule(self) except -1
    cdef int _look(self, bint slept) except -1
    cdef bint _yields(self, int64_t now_ns) noexcept
    cdef void _count(self, uint32_t *vain, bint is_short) noexcept
    cdef bint _poll_busy(self) except -1
    cdef int lost(self, RingLink link, error) except -1

cdef class OutputArena(Arena):
    cdef Channel channel

cdef class RingLink(Link):
    cdef readonly ModelRuntime runtime
    cdef readonly Poller poller
    cdef Channel channel
    cdef ShareTable shares       # what the worker was told of memory that is not its arenas
    cdef public int64_t question  # see gpu_pool.BorrowerFace
    cdef MemoryFile lent         # GPU memory that the worker has for outputs, or None
    cdef list unclosed           # such memory that it does not use any more, and that its driver has not closed
    cdef list stays              # of a process that lingers: what holds blocks of the input arena that it may write to
    cdef dict copies             # number of a worker's message: Block with a copy of GPU memory that it cannot open
    cdef dict running            # ticket -> InferRequest
    cdef dict retained           # ticket -> InferInput, answered while user code still holds its inputs
    # deque: (batch_end, inferences) of each batch of a decoupled model that `execute` is not done with
    cdef object executing
    cdef bint decoupled, padded, closed
    cdef object registry
    cdef int _linger(self, uint64_t taken, str lingers) except -1
    # Have the worker know where all of the request's inputs lie.
    cdef int show_foreign(self, InferInput input) except -1
    cdef list _recall_batch(self, InferRequest like)
    cdef bint poll(self) except -1
    cdef bint _quiet(self) noexcept
    cdef int _on_slot(self, tf_complete_slot *slot) except -1
    cdef int _on_answer(self, tf_complete_slot *slot) except -1
    cdef int _on_response(self, InferRequest request, tf_complete_slot *slot) except -1
    cdef int _on_reschedule(self, tf_complete_slot *slot) except -1
    cdef int _submit_null(self, InferRequest like, Py_ssize_t left, uint32_t slot, int64_t now_ns) except -1
    cdef int _on_executed(self, tf_complete_slot *slot) except -1
    cdef int _on_execution_over(self, tf_complete_slot *slot) except -1
    cdef int _on_call(self, tf_complete_slot *slot) except -1
    cdef int _on_release(self, uint64_t ticket) except -1
    cdef Block _block(self, tf_complete_slot *slot)
    cdef int _status(self, tf_complete_slot *slot) except -1
    cdef str _text(self, InferRequest request, tf_complete_slot *slot, Block block)
