# An ensemble as it is run: tensors and steps by number.  Immutable but for what it remembers.  Layer 3 (engine).
from libc.stdint cimport uint32_t, uint64_t

cdef class StepPlan:
    """One step.  Its inputs are all of one scope; a decoupled step makes a new scope for each response."""
    cdef readonly int index
    cdef readonly str model
    cdef readonly str version       # "" for the newest
    cdef readonly list inputs       # of (input of the model, tensor)
    cdef readonly dict outputs      # by output of the model: tensor
    cdef readonly list wanted       # outputs of the model to ask for
    cdef readonly tuple needs       # tensors, each once
    cdef readonly bint decoupled
    # What it answers is moved into the ensemble's own memory: a step behind it needs an instance that may be busy
    # answering, and would wait for itself once so many unread answers lay in that instance's memory as may.
    cdef readonly bint moves

cdef class GraphOutput:
    """One output of the ensemble."""
    cdef readonly str name
    cdef readonly int tensor
    cdef readonly tuple dims        # as clients see it, without the batch dimension
    cdef readonly tuple inner_dims  # the same between the steps (`reshape`)

cdef class Selection:
    """The steps that must run for a set of requested outputs."""
    cdef list consumers             # by tensor: the StepPlans that want it
    cdef list uses                  # by tensor: how many want it, the answer included
    cdef list waits                 # by step: how many tensors it needs
    cdef list graph_outputs               # requested
    cdef set wanted                 # their tensors
    cdef int level                  # decoupled steps that these have gone through

cdef class EnsembleGraph:
    cdef readonly list steps
    cdef readonly uint32_t running_max  # requests to one step at a time; 0: any number
    cdef readonly list tensors      # names
    cdef readonly dict inlets       # by input of the ensemble: (tensor, dims, inner dims)
    cdef readonly list graph_outputs      # by output of the ensemble
    cdef list levels                # by tensor
    cdef list makers                # by tensor: its StepPlan, or None
    cdef dict selections            # by requested outputs; bounded
    # requested: bit i for output i.
    cdef Selection select(self, uint64_t requested)
    cdef Selection _selected(self, uint64_t requested)

# A tensor's shape as its next model takes it.  dims: of that model; batches: whether it has a batch dimension; batch: of the
# model that the tensor comes from, 0 when that has none.  Ensembles may join models with and without batches.
cdef tuple fit_shape(tuple shape, tuple dims, bint batches, uint32_t batch)

# `reshape`: a shape of `before` as one of `after`; the k-th variable dimension stays the k-th.
cdef tuple reshaped(tuple shape, tuple before, tuple after)
