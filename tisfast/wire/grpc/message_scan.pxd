# The first look at a ModelInferRequest: where its parts lie.  Layer 2 (wire).
from libc.stdint cimport uint32_t, uint64_t
from tisfast.wire.grpc.cursor cimport Cursor, Field

cdef enum RequestField:
    MODEL_NAME = 1
    MODEL_VERSION = 2
    ID = 3
    PARAMETERS = 4
    INPUTS = 5
    OUTPUTS = 6
    RAW_CONTENTS = 7

cdef enum:
    RAWS_AT_HAND = 16

cdef struct Raw:
    uint64_t at                 # in the message
    uint64_t nbytes

cdef class Message:
    """A request message, borrowed from the block that it was received in."""
    cdef const unsigned char *data
    cdef uint64_t nbytes
    cdef Raw *raws
    cdef Raw at_hand[RAWS_AT_HAND]
    cdef uint32_t raw_count
    cdef uint32_t raw_room
    cdef const unsigned char *id_text   # NULL: none
    cdef uint64_t id_bytes
    cdef uint64_t id_start, id_end      # of the id's field in the message
    cdef uint64_t head_end              # of all but the raw tensors, when `in_order`
    cdef bint in_order                  # one id at most, raw tensors behind all else that means something
    cdef int note(self, const Field *field, uint64_t start, uint64_t end) except -1
    cdef int grow(self) except -1

# raws_max: more are counted in the error.  Raises Internal for what is no message, BadRequest for too many raw tensors.
cdef Message scan(const unsigned char *data, uint64_t nbytes, uint32_t raws_max)
