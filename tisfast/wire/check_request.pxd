# Does a request fit its model?  Layer 2 (wire).
from tisfast.wire.infer_plan cimport InferPlan

# Counts, names, batch size, types, shapes and sizes, then sorts the tensors by input index, sets the plan's
# batch and shape key.  Raises BadRequest with Triton's wording.
cdef int check_fit(InferPlan plan) except -1
