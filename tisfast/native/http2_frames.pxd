# The heads of HTTP/2 frames on their way to nghttp2: what the library would not bound is counted, and what it would take
# amiss is left out.  Layer 1 (native).
from libc.stdint cimport int32_t, uint8_t

cdef struct Piece:
    const uint8_t *data
    size_t nbytes

cdef class FrameGate:
    """One for each connection.  It sees frames before the library does, and copies nothing but a head that comes in parts.

    A frame that costs its sender next to nothing and moves nothing counts as idle; what moves something takes some back
    (`moved`).
    """
    cdef bint greeted                    # a frame has begun
    cdef bytes refusal                   # why the client is sent away, or None; nothing is read from then on
    cdef int idle_frames, large_heads    # of this second
    cdef double resets_left
    cdef size_t left                     # bytes of the current frame that pass
    cdef size_t dropping                 # bytes that do not
    cdef uint8_t head[9]
    cdef size_t head_bytes               # of a frame head that has come in part
    cdef size_t block_bytes              # of the header block that is coming
    cdef bint in_block
    cdef int32_t last_head               # largest number of a call that has begun
    # What of these bytes goes to the library next; returns how many are used.
    cdef size_t next(self, const uint8_t *data, size_t n, Piece *piece) except? 0
    cdef bint admit(self, const uint8_t *head) except -1
    cdef bint count_idle(self) except -1
    cdef int refuse(self, bytes reason) except -1
    cdef int count_large_head(self) except -1
    cdef void moved(self) noexcept       # a message has come, or a frame of an answer has gone
    cdef void second(self) noexcept      # another second has passed
