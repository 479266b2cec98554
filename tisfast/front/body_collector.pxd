# The body of a request that does not go straight into an arena.  Layer 4 (front).
from libc.stdint cimport uint64_t
from tisfast.front.listener_context cimport ListenerContext

cdef class SpilledBody:
    """A body in a memory file, for a codec process: it is written once and never copied here."""
    cdef int fd
    cdef readonly uint64_t nbytes

cdef class BodyCollector:
    """Collects one body after the other.  What it holds is bounded by itself and, in `shared.collected`, with all others."""
    cdef ListenerContext shared
    cdef object body                     # a BytesIO, which gives its bytes away uncopied, or a SpilledBody; None: there is none
    cdef bint spills                     # it goes to a codec process when it is large
    cdef uint64_t nbytes                 # that are to come; of a chunked one, that may
    cdef uint64_t counted                # bytes of it in shared.collected
    cdef int begin(self, uint64_t nbytes, bint chunked, bint spills) except -1
    # The next bytes of the body.  Raises TisError, and has dropped the body then.
    cdef int add(self, const unsigned char *data, Py_ssize_t n) except -1
    # The body, b"" when there was none; it no longer counts from here on.
    cdef bytes take(self)
    # The body if it lies in a memory file, else None.  It counts until `drop`.
    cdef SpilledBody spilled(self)
    cdef int drop(self) except -1
    cdef int _count(self, uint64_t nbytes) except -1
    cdef int _spill(self) except -1
