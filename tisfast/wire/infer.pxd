# An inference body becomes an InferInput.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint64_t
from tisfast.native.memory cimport Arena, Block
from tisfast.wire.record cimport InferInput
from tisfast.wire.signature cimport ModelSignature

# data[0:nbytes] is the body.  With `body` (the block that data lies in) binary tensors stay where they are, and the
# record goes behind the body if the block has room (model.record_room is usually enough).  Without it data is borrowed
# for the call and everything is copied into one block: [record, tensors at multiples of 64].
# json_bytes: Inference-Header-Content-Length, -1 when absent (all is JSON), 0 for a raw binary request.
# Raises TisError with Triton's status and wording; no block is kept then.
cdef InferInput parse_infer(
    ModelSignature model, Arena arena, Block body, const unsigned char *data, uint64_t nbytes, int64_t json_bytes,
    uint64_t max_input_bytes)

# Headroom before a body in its block that puts its first binary tensor at a multiple of 64.
cdef inline uint64_t body_start(int64_t json_bytes) noexcept:
    return (64 - <uint64_t>json_bytes % 64) % 64 if json_bytes > 0 else 0
