# A ModelInferRequest becomes a checked InferPlan.  Layer 2 (wire).
from tisfast.wire.draft cimport InferBody
from tisfast.wire.grpc.message_scan cimport Message
from tisfast.wire.infer_plan cimport InferPlan

# Raises TisError with Triton's texts, in its order.
cdef InferPlan parse_message(InferBody body, Message message, list values)
