# Texts and parameters of protobuf messages as Python values.  Layer 2 (wire).
from libc.stdint cimport int64_t
from tisfast.wire.grpc.cursor cimport Cursor, Field
from tisfast.wire.infer_plan cimport InferPlan

# A message that is no message (Triton's text).
cdef broken()
# Raises Internal when it is not UTF-8.
cdef str text_of(const Field *field)

cdef class Parameter:
    """A value and the field of InferParameter that held it; kind "" for none."""
    cdef readonly str kind
    cdef readonly object value

# Adds one entry of a map<string, InferParameter>.
cdef int take_parameter(const Field *field, dict parameters) except -1

# Request parameters into the plan; returns the custom ones as JSON text.
cdef bytes apply_parameters(InferPlan plan, dict parameters, bytes forwarded)

cdef class SharedPlace:
    """Where in which region a tensor lies; region None: it does not."""
    cdef readonly str region
    cdef readonly int64_t offset, nbytes

# What the parameters of an input or output say of shared memory.
cdef SharedPlace shared_place(str name, dict parameters)
