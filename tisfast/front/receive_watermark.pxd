# When the kernel wakes the loop for the bytes of a large body: not for each piece.
from libc.stdint cimport uint64_t

cdef class ReceiveWatermark:
    cdef int fd                     # -1: the transport reads (TLS)
    cdef int mark                   # bytes that must lie in the socket
    cdef Py_ssize_t moved           # since its last rest, where buffers were filled
    cdef int await_body(self, uint64_t missing) except -1  # so many bytes of a body are to come; 0: it is whole
    # Be woken for what is there, however little: the client sends slowly, and must be seen to send.
    cdef int await_any(self) except -1
    cdef bint has_bytes(self) noexcept   # in the kernel, which the loop will read
    # n bytes filled what was offered, and the system will read on.  True: the connection had its turn, and is to rest.
    cdef bint had_turn(self, Py_ssize_t n) noexcept
    cdef int _set(self, int mark) except -1
