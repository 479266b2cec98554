# Writing to one socket: straight into the kernel while it takes bytes, through the transport for what it does not.
cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef enum:
    PIECES_MAX = 67  # HTTP head, JSON, OUTPUTS_MAX tensors

cdef class Sender:
    cdef object transport
    cdef int fd                          # -1: only through the transport (TLS)
    cdef bint backlog                    # the transport has bytes that the kernel did not take
    # Send n pieces.  The first `passing` lie in memory that is written again after this call: what the kernel does not
    # take of them is copied.  The others are kept alive by `owner`, for as long as it takes.
    cdef int send(self, iovec *pieces, int n, int passing, object owner) except -1
    cdef int _queue(self, iovec *pieces, int n, int passing, object owner, size_t sent) except -1
