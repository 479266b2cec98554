# Parse an inference head.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.plan cimport InferPlan
from tisfast.wire.signature cimport ModelSignature

# binary_bytes: received behind the head; max_input_bytes: --http-max-input-size.
cdef InferPlan parse_plan(ModelSignature model, object doc, uint64_t binary_bytes, uint64_t max_input_bytes)

# A body that is one tensor and nothing else (row 2.06).
cdef InferPlan raw_plan(ModelSignature model, uint64_t nbytes, uint64_t max_input_bytes)
