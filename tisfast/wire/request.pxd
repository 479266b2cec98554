# Parse an inference head; and the parts of that which every protocol has.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.native.region cimport Regions
from tisfast.wire.plan cimport InferPlan, TensorPlan
from tisfast.wire.signature cimport ModelSignature

# binary_bytes: received behind the head; max_input_bytes: --http-max-input-size.
cdef InferPlan parse_plan(
    ModelSignature model, object doc, uint64_t binary_bytes, uint64_t max_input_bytes, Regions regions)

# A body that is one tensor and nothing else (row 2.06).
cdef InferPlan raw_plan(ModelSignature model, uint64_t nbytes, uint64_t max_input_bytes)

# ---- For every protocol's codec.  Set plan.regions and fill in plan.tensors between new_plan (and plan.reserve) and
# finish.

cdef InferPlan new_plan(ModelSignature model)
# Checks the request against the model, then builds the part of the record that repeats.  parameters: JSON text of the
# request's custom parameters, b"" when there are none.
cdef InferPlan finish(InferPlan plan, bytes parameters)

# Counts tensor.elements of its shape, whose dimensions are >= 0.
cdef int count_elements(TensorPlan *tensor, str name) except -1

# The tensor lies in a registered region, which is looked up at every use.
cdef int region_input(InferPlan plan, TensorPlan *tensor, str region, uint64_t offset, uint64_t nbytes) except -1
