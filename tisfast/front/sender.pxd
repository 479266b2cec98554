# Writing to one socket: straight into the kernel while it takes bytes, through the transport for what it does not.
from libc.stdint cimport uint64_t

cdef class Sender:
    cdef object transport
    cdef int fd                          # -1: only through the transport (TLS)
    cdef bint backlog                    # the transport has bytes that the kernel did not take
    # Send `head`, `body` and the buffers in `tensors` (or None).  Buffers stay exported until the kernel has them.
    cdef int send(self, bytes head, bytes body, list tensors) except -1
    cdef int _small(self, bytes head, bytes body, list tensors, Py_ssize_t total) except -1
    cdef int _gather(self, bytes head, bytes body, list tensors) except -1
