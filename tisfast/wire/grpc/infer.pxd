# A ModelInferRequest becomes an InferInput.  Layer 2 (wire).
from libc.stdint cimport uint32_t, uint64_t
from tisfast.wire.draft cimport InferBody
from tisfast.wire.grpc.cursor cimport Field
from tisfast.wire.record cimport InferInput

cdef enum Peeked:
    PEEK_MORE = 0       # needs more bytes
    PEEK_FOUND = 1
    PEEK_NONE = 2       # the name does not come first, or the message is broken: collect it whole and call again

cdef class Peek:
    """The beginning of a message: which model is asked, and where its first raw tensor starts."""
    cdef readonly str name
    cdef readonly str version       # canonical, "" for any
    cdef readonly str id            # of the request, as far as the bytes tell
    cdef readonly uint64_t raw_at   # of the first raw tensor in the message, 0 when that is not known yet
    # data[0 : nbytes] of a message of `total` bytes; Peeked.  Raises Internal for a whole message that is broken, and
    # BadRequest for a version that is none.
    cdef int read(self, const unsigned char *data, uint64_t nbytes, uint64_t total) except -1
    cdef int take(self, const Field *field) except -1

# Where a message is to start in its block: behind room for the record, and such that the first raw tensor lies at a
# multiple of 64 (then it is never moved).
cdef inline uint64_t message_start(uint32_t record_room, uint64_t raw_at) noexcept:
    return (record_room + raw_at + 63) // 64 * 64 - raw_at

# Raw tensors stay where they are (they are moved within the block when their type asks for another alignment), typed
# contents go into a block of their own, of at most body.max_input_bytes each.  Raises TisError with Triton's wording, and the
# request's id among its facts.
cdef InferInput read_grpc_infer(InferBody body)

# Bytes of a message that are no raw tensors, or more than a glance tells: reading it takes time by their number.
cdef uint64_t head_bytes(const unsigned char *data, uint64_t nbytes) noexcept
