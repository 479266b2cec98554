# An inference body becomes an InferInput.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.native.memory cimport Arena, Block
from tisfast.native.region cimport Regions
from tisfast.wire.plan cimport InferPlan, TensorPlan
from tisfast.wire.record cimport InferInput
from tisfast.wire.signature cimport ModelSignature

# The body is body.data[start : start + nbytes].  Binary tensors stay where they are and the record goes into the
# headroom [0, start); what does not fit or must be decoded goes into a block of its own, or, when nothing of the body is
# needed any more, over the body.
# head_bytes: Inference-Header-Content-Length, -1 when absent (all is JSON), 0 for a raw binary request.
# regions: what clients have registered; None: no region is known.
# Raises TisError with Triton's status and wording.
cdef InferInput read_infer(
    ModelSignature model, Arena arena, Block body, uint64_t start, uint64_t nbytes, int64_t head_bytes,
    uint64_t max_input_bytes, Regions regions)

# Headroom for a body that is being received: room for the record, and such that the first binary tensor lies at a
# multiple of 64 (blocks do).
cdef inline uint64_t body_start(uint32_t record_room, int64_t head_bytes) noexcept:
    cdef uint64_t json = <uint64_t>head_bytes if head_bytes > 0 else 0
    return (record_room + json + 63) // 64 * 64 - json

# ---- For every protocol's codec.

# A request of this plan, still without record and blocks.  It holds the regions that its outputs go to; those of its
# inputs are looked up, and their bounds checked, so that tensor.nbytes can be believed.
cdef InferInput new_request(InferPlan plan, Regions regions)

# Copies a FROM_REGION tensor to `at` (tensor.nbytes), and checks it as walk_strings does.
cdef int fetch(InferPlan plan, TensorPlan *tensor, Regions regions, unsigned char *at) except -1

# Counts and lengths inside a BYTES tensor of tensor.nbytes (row 15.55).  Raises BadRequest.
cdef int walk_strings(InferPlan plan, TensorPlan *tensor, const unsigned char *at) except -1
