# Requests made of tensors that are there already: steps of ensembles, calls of models, warm-up.  Layer 2 (wire).
from libc.stdint cimport uint16_t, uint64_t
from tisfast.native.memory cimport Arena
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.signature cimport ModelSignature
from tisfast.wire.tensors cimport Tensor

cdef class ComposeFields:
    """Fields of a composed request beside its tensors.  The defaults are those of a request that says nothing."""
    cdef public str id
    cdef public uint64_t priority, timeout_us
    cdef public object correlation      # int or str, 0 for none
    cdef public uint16_t sequence_flags # 1 start, 2 end
    cdef public bytes parameters        # JSON object text, b"" for none
    cdef public object requested        # names of outputs, None for all
    cdef int device_wanted              # InferInput's
    cdef dict ways                      # OutputForm by output index: where a client wants an output in GPU memory; or None

# A request to `model` of these tensors (list of Tensor, any order), with its record in a new block of `arena`, the model's
# input arena.  Tensors below tuning.REFERENCE_BYTES_MIN are copied beside the record, larger ones stay where they are and
# are kept alive by the request.  Raises TisError with Triton's wording (what fronts say of a client's request), and
# Unavailable when the arena is full.
cdef InferInput compose(ModelSignature model, Arena arena, list tensors, ComposeFields fields)

# The outputs of an answer, in its order; each keeps alive what it lies in.
cdef list tensors_of(Answer answer)

# The inputs of a request, in the order of the model's inputs; each keeps the request's memory alive.  Only while no worker
# of the request's model has it, or for values that are checked again: its record is believed.
cdef list tensors_of_input(InferInput request)

# What a worker names by a place in a record of its own: [place, place + nbytes) of arena 0, within a request that it has.
# Raises Internal when the request does not own it.
cdef Tensor tensor_at(InferInput request, str name, int dtype, tuple shape, uint64_t place, uint64_t nbytes)
