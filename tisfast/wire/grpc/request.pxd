# A ModelInferRequest becomes a checked InferPlan.  Layer 2 (wire).
from tisfast.native.region cimport Regions
from tisfast.wire.grpc.scan cimport Message
from tisfast.wire.plan cimport InferPlan
from tisfast.wire.signature cimport ModelSignature

# Raises TisError with Triton's texts, in its order (rows 13.06 to 13.10).
cdef InferPlan parse_message(ModelSignature model, Message message, Regions regions, bytes forwarded)
