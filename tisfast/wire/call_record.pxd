# Call and reply records of workers/WIRE.md: a model asks another model.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from tisfast.native.memory cimport Arena, Block

cdef enum CallFlags:
    CALL_SEQUENCE = 3           # start, end
    CALL_CORRELATION_TEXT = 4
    CALL_ANY_NUMBER = 8         # of responses is welcome, or none
    CALL_WAITS = 16             # the instance executes nothing else until the call is answered
    CALL_TAKES_GPU = 32         # outputs on the instance's GPU may stay there

# Whose memory an input of a call lies in.
cdef enum CallSource:
    FROM_REQUEST = 0            # an input of the request `owner` that the instance has
    FROM_CALL = 1               # the block of the call's own record
    FROM_ANSWER = 2             # an output of the answer `owner` that the instance keeps
    FROM_LENT = 3               # the GPU memory that the instance was lent, as long as the call's record lasts

cdef struct CallPlace:
    uint64_t source, owner, place, nbytes

cdef class CallPlan:
    """The meaning of one signature: the model to ask, the wanted outputs, and names, types and shapes of the inputs."""
    cdef readonly str model, version    # version "" for the newest
    cdef readonly object requested      # names, None for all outputs
    cdef readonly list names, dtypes, shapes
    cdef readonly Py_ssize_t count

cdef class CallRecord:
    cdef readonly CallPlan plan
    cdef readonly uint16_t flags
    cdef readonly uint64_t timeout_us, parent, trace    # tickets; all ones for nobody
    cdef readonly object correlation
    cdef readonly str id
    cdef readonly bytes parameters
    cdef bytes raw
    cdef const CallPlace *places        # plan.count of them, in `raw`

# Copies the record out of shared memory and checks that its parts fit; what its places name is the caller's to check.
# plans: of the same instance, by signature; bounded here.  Raises Internal: the worker lied.
cdef CallRecord read_call(const unsigned char *data, uint32_t nbytes, dict plans)

# The answer to a call: outputs (list of Tensor) into a block of `arena`, small ones with their bytes.  shares: per output,
# the share id by which the instance knows its memory, 0 for those that are to be copied.
cdef Block write_reply(Arena arena, list tensors, list shares, bytes parameters, uint32_t *record_bytes)
