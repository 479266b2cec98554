# Parse an inference head; and the parts of that which every protocol has.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.draft cimport InferBody
from tisfast.wire.infer_plan cimport InferPlan, TensorPlan
from tisfast.wire.signature cimport ModelSignature

# doc: the body's head as JSON values; binary_bytes: received behind it; values: an empty list, which becomes a Draft's.
cdef InferPlan parse_plan(InferBody body, object doc, uint64_t binary_bytes, list values)

# A body that is one tensor and nothing else.
cdef InferPlan raw_plan(InferBody body)

# ---- For every protocol's codec.  Set plan.regions and fill in plan.tensors between new_plan (and plan.reserve) and
# finish.

cdef InferPlan new_plan(ModelSignature model)
# Checks the request against the model, then builds the part of the record that repeats: the plan is frozen from here on.  parameters: JSON text of the
# request's custom parameters, b"" when there are none.
cdef InferPlan finish(InferPlan plan, bytes parameters)

# Counts tensor.elements of its shape, whose dimensions are >= 0.
cdef int count_elements(TensorPlan *tensor, str name) except -1

# The tensor lies in a registered region, which is looked up at every use.
cdef int region_input(
    InferPlan plan, TensorPlan *tensor, str name, str region, uint64_t offset, uint64_t nbytes) except -1

# Into a plan, as an inference request has them: the id of the document, and its entries of `inputs`.
cdef int read_id(InferPlan plan, dict root) except -1
cdef int read_inputs(
    InferPlan plan, list inputs, uint64_t binary_bytes, uint64_t max_input_bytes, list values) except -1
