# Request parameters and requested outputs, for every protocol.  Layer 2 (wire).
from tisfast.wire.infer_plan cimport InferPlan

# One requested output with its parameters (binary_data, classification, shared_memory_*) as Python values.
cdef int choose_output(InferPlan plan, str name, dict parameters) except -1

# One request parameter of JSON: Triton's own into the plan, others into `custom`; gRPC's: wire/grpc/values.
cdef int request_parameter(InferPlan plan, str name, object value, dict custom) except -1

# A sequence id that is a text.  Raises Unsupported for one that is too long.
cdef str text_id(str value)

# Raises BadRequest when an output's parameters exclude each other.  choose_output does it, too.
cdef int check_output_parameters(dict parameters) except -1
