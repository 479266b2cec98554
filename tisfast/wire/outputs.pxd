# Outputs that are not given as their tensors, for every protocol.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.infer_plan cimport InferPlan
from tisfast.wire.record cimport Answer, InferInput, OutputRef

# How many outputs of a request like this its worker could write to GPU memory of the client itself.  ways: OutputForm by
# output index, or None.
cdef int output_places(InferPlan plan, dict ways) except -1

# Notes these places in a record that has room for them.  ways: bound to their regions.
cdef int place_outputs(InferInput request, InferPlan plan, dict ways) except -1

cdef class SpecialOutput:
    """Either the output has been written into a region, or its best classes stand for it.  Lives with its answer."""
    cdef readonly str region              # not None: it is there now
    cdef readonly uint64_t offset, nbytes # of the bytes in the region
    cdef readonly bytes strings           # else: BYTES elements in KServe's form
    cdef readonly tuple shape             # of `strings`
    cdef readonly uint64_t elements       # of `strings`

# The worker has written it where the client wants it.
cdef bint is_written(Answer answer, OutputRef *out) except -1

# Whether writing an answer's regions waits for a GPU, or is long; else the loop does it when it renders the answer.
cdef bint region_waits(Answer answer) except -1
# Then: the work, as of late_steps.  Raises TisError.
cdef list region_steps(Answer answer)

# For an output whose bit is set in OutputChoice.special; once per answer.  Raises Internal when the region is too small,
# BadRequest when the output cannot be classified or its region has gone.
cdef bint into_region(Answer answer, OutputRef *out) except -1
cdef SpecialOutput prepare(Answer answer, OutputRef *out)
