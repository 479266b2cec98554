# Parse an inference head.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.plan cimport InferPlan
from tisfast.wire.signature cimport ModelSignature

# binary_bytes: received behind the head; max_input_bytes: --http-max-input-size; forwarded: further parameters, a JSON
# object as text or b"".
cdef InferPlan parse_plan(
    ModelSignature model, object doc, uint64_t binary_bytes, uint64_t max_input_bytes, bytes forwarded)

# A body that is one tensor and nothing else (row 2.06).
cdef InferPlan raw_plan(ModelSignature model, uint64_t nbytes, uint64_t max_input_bytes, bytes forwarded)

# Steps of the above, for whoever finds the values elsewhere (wire/generate): an empty plan; `id` of root; `inputs`;
# and the end, parameters being a JSON object as text, or b"".
cdef InferPlan new_plan(ModelSignature model)
cdef int read_id(InferPlan plan, dict root) except -1
cdef int read_inputs(InferPlan plan, list inputs, uint64_t binary_bytes, uint64_t max_input_bytes) except -1
cdef InferPlan finish(InferPlan plan, bytes parameters)
