# What models ask of other models.  Layer 3 (engine): no ring, no socket.
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from tisfast.engine.core cimport InferRequest, Link
from tisfast.engine.deadlock cimport OpenCall, OpenCalls
from tisfast.engine.interface cimport Runtime
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.native.memory cimport Block, MemoryFile
from tisfast.wire.call_record cimport CallRecord
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.tensors cimport Tensor

# One answer to a call, as it goes back to the instance.
cdef struct ReplyMark:
    uint64_t call               # number, the instance's own
    uint64_t answer             # what the instance will name when it lets go of the memory; 0: nothing to let go
    uint64_t offset             # of the record in the caller's input arena
    uint32_t nbytes             # of the record; 0: none
    uint16_t status
    bint final

cdef class CallPort:
    """The instance that calls, as Calls needs it.  Subclasses override all."""
    # A request that the instance has, or None.
    cdef InferRequest request_of(self, uint64_t ticket)
    # Of such a request, or of one that was answered while user code still holds its inputs; or None.
    cdef InferInput input_of(self, uint64_t ticket)
    # The requests of the batch that this one began; () when the instance does not have it.
    cdef object batch_of(self, uint64_t ticket)
    # The id by which the instance knows this memory, told to it when it is new.  0: it cannot be told.
    cdef uint16_t share_of(self, MemoryFile file) except? 0
    # The GPU memory that it was lent, or None.
    cdef MemoryFile lent(self)
    # False: no room now; `Calls.flush` is to be called when there is.
    cdef bint send(self, ReplyMark *mark) except -1

cdef class Calls(OpenCalls):
    """The calls that one instance makes, until its worker ends.  registry: has `resolve(model, version)`."""
    cdef readonly ModelRuntime runtime      # of the caller
    cdef CallPort port
    cdef object registry
    cdef dict held                          # answer: RetainedInputs
    cdef object unsent                      # deque of (ReplyMark's fields) that found no room
    cdef dict plans
    cdef uint64_t answers                   # numbered so far
    # What an instance says.  Nothing that it says raises.
    cdef int call(self, uint64_t number, Block block, uint32_t nbytes) except -1
    cdef int cancel(self, uint64_t number, bint forget) except -1
    cdef int done(self, uint64_t answer) except -1
    # Send what found no room.
    cdef int flush(self) except -1
    # The worker is gone: its calls are cancelled, what it held is let go.
    cdef int close(self) except -1
    cdef int _begin(self, uint64_t number, CallRecord record, Block block) except -1
    cdef Runtime _callee(self, CallRecord record)
    cdef list _inputs(self, CallRecord record, Block block)
    cdef Tensor _input(self, CallRecord record, Py_ssize_t i, Block block)
    cdef int reply(self, Call call, Answer answer, bint final) except -1
    cdef uint16_t _share(self, Tensor tensor) except? 0
    cdef int tell_error(self, uint64_t number, int status, str message, bint final) except -1
    cdef int _send(self, ReplyMark *mark) except -1

cdef class RetainedInputs:
    """Memory that the instance may refer to until it releases it: a record, and tensors in other memory."""
    cdef Block record
    cdef list tensors                       # those that the instance knows by a place
    cdef list places                        # of each, as the instance names it
    cdef Tensor find(self, uint64_t place, uint64_t nbytes)

cdef class Call(OpenCall):
    """One call, and where its answers go."""
    cdef readonly uint64_t number
    cdef bint over
    cdef int _end(self) except -1
