# The tensors of a request to an ensemble, between its steps.  Layer 3 (engine).
from libc.stdint cimport uint16_t, uint32_t
from tisfast.engine.ensemble_graph cimport Selection, StepPlan
from tisfast.native.memory cimport Arena
from tisfast.wire.compose cimport ComposeFields
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.signature cimport ModelSignature
from tisfast.wire.tensors cimport Tensor

cdef class ScopeTensor:
    """A tensor of a request, on its way between steps."""
    cdef Tensor tensor              # None: its step did not give it, or the client did not send it
    cdef uint32_t batch             # of the model that it comes from, 0 when that has no batch dimension
    cdef bint told                  # the two that follow come from a step
    cdef object correlation
    cdef uint16_t sequence_flags

cdef class Scope:
    """The tensors that belong together: those of the request, or of one response of a decoupled step."""
    cdef Scope parent
    cdef list tensors               # of ScopeTensor, by tensor; None: not there, or wanted by nobody any more
    cdef list uses, waits           # as Selection's, of what is left
    cdef int level
    cdef int outputs_left           # requested outputs that are not there yet
    cdef object children            # deque of Scope in the order of their responses, or None
    cdef bint closed                # its decoupled step has ended: no more children
    cdef tuple failure              # (status, message) of a step in it, or None; told when its turn has come

cdef Scope new_scope(Selection selection, Scope parent, int level)

# Scopes refer to each other; their tensors' memory is to be free now, not when that is noticed.
cdef int dissolve(Scope root) except -1

# What a step's model gets.  Writes into `fields` what earlier steps have said of the sequence.
cdef list step_inputs(Scope scope, StepPlan step, ModelSignature signature, ComposeFields fields)

# Where the client wants outputs of the ensemble in GPU memory that this step makes and no other one takes: OutputForm by
# output of the step's model; None: nowhere.
cdef dict step_ways(StepPlan step, ModelSignature signature, Selection selection, InferInput request)

# The response that a scope is, once all requested outputs are there or known to be missing.  Its tensors leave it.
cdef Answer answer_of(Scope scope, list graph_outputs, InferInput request)

# The tensor in other memory, so that who made it has its own back.  Raises Unavailable.
cdef Tensor moved(Tensor tensor, Arena arena)

# (correlation, flags): what a step's response says of the sequence, over what its request said.
cdef tuple sequence_of(bytes parameters, object correlation, object flags)
