# The body of a request that does not go straight into an arena.  Layer 4 (front).
from libc.stdint cimport uint64_t
from tisfast.front.shared cimport FrontShared
from tisfast.wire.chunked cimport ChunkDecoder

cdef class Collector:
    """Collects one body after the other.  What it holds is bounded by itself and, in `shared.collected`, with all others."""
    cdef FrontShared shared
    cdef object body                     # a BytesIO, which gives its bytes away uncopied; None while there is none
    cdef ChunkDecoder chunks             # of a chunked one, else None
    cdef uint64_t nbytes                 # that are to come; of a chunked one, that may
    cdef uint64_t counted                # bytes of it in shared.collected
    cdef int begin(self, uint64_t nbytes, bint chunked) except -1
    # Take what is the body's; returns how many bytes that were.  Raises TisError, and has dropped the body then.
    cdef Py_ssize_t feed(self, const unsigned char *data, Py_ssize_t n) except -1
    cdef bint whole(self) except -1
    # The body, b"" when there was none; it no longer counts from here on.
    cdef bytes take(self)
    cdef int drop(self) except -1
    cdef Py_ssize_t _feed(self, const unsigned char *data, Py_ssize_t n) except -1
    cdef int _count(self, uint64_t nbytes) except -1
