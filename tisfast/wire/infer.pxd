# An inference body becomes an InferInput.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.native.region cimport Regions
from tisfast.wire.draft cimport Draft, InferBody
from tisfast.wire.record cimport InferInput

# Binary tensors stay where they are and the record goes into the headroom [0, body.start); what does not fit or must be
# decoded goes into a block of its own, or, when nothing of the body is needed any more, over the body.
# Raises TisError with Triton's status and wording; ReadElsewhere when more is to be copied than regions.copied_at_once.
cdef InferInput read_infer(InferBody body)

# The second half of it: a draft's tensors and its record into the body's block, if that is large enough, or a block of their
# own.  tail: of what stands behind the body's head, in the block.
cdef InferInput assemble(Draft draft, InferBody body, uint64_t tail)

# Headroom for a body that is being received: room for the record, and such that the first binary tensor lies at a
# multiple of 64 (blocks do).
cdef inline uint64_t body_start(uint32_t record_room, int64_t head_bytes) noexcept:
    cdef uint64_t json = <uint64_t>head_bytes if head_bytes > 0 else 0
    return (record_room + json + 63) // 64 * 64 - json

# Bytes of a leading {"id":"…" whose text needs no decoding, else 0.  begin: where the text starts.
cdef uint64_t leading_id(const unsigned char *data, uint64_t n, uint64_t *begin) noexcept

# ---- For every protocol's codec.

# A request of this draft, still without record and blocks.  It holds the regions that its outputs go to; those of its
# inputs are looked up, and their bounds checked, so that their bytes can be believed.
cdef InferInput new_request(Draft draft, Regions regions)

# Copies input i, which is FROM_REGION, to `at`, in the request's extra block, and checks it as walk_strings does; of GPU
# memory the request notes that it is to be done later.
cdef int fetch(Draft draft, int i, Regions regions, InferInput request, unsigned char *at) except -1

# Counts and lengths inside input i, which is of BYTES.  Raises BadRequest.
cdef int walk_strings(Draft draft, int i, const unsigned char *at) except -1
