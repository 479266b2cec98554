# What one gathered write of an HTTP/2 session takes.  Layer 1 (native).
cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef enum:
    OUTGOING_PUT_BYTES_MAX = 16384 + 64

cdef class Outgoing:
    """Frames as text in a buffer of its own, and pieces of what `owners` keep alive."""
    cdef unsigned char *text
    cdef size_t used
    cdef iovec *pieces
    cdef int count
    cdef int room
    cdef size_t nbytes
    cdef list owners
    cdef int put(self, const void *data, size_t n) except -1             # copied; n <= OUTGOING_PUT_BYTES_MAX
    cdef int add(self, const void *data, size_t n) except -1             # borrowed from what is passed to `keep`
    cdef int keep(self, object owner) except -1
    cdef bint full(self) noexcept
    cdef int _piece(self, const void *data, size_t n) except -1
    cdef int clear(self) except -1
