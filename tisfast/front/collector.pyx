"""Bodies outside arenas; see collector.pxd.  Layer 4 (front)."""

from io import BytesIO

from libc.stdint cimport uint64_t

from tisfast import limits
from tisfast.errors import TisError, Unavailable

cdef uint64_t COLLECT_BYTES_MAX = limits.HTTP_COLLECT_BYTES_MAX


cdef class Collector:
    """See collector.pxd."""

    def __cinit__(self, FrontShared shared):
        self.shared = shared

    cdef int begin(self, uint64_t nbytes, bint chunked) except -1:
        self.body = BytesIO()
        self.chunks = ChunkDecoder() if chunked else None
        self.nbytes = nbytes
        return 0

    cdef Py_ssize_t feed(self, const unsigned char *data, Py_ssize_t n) except -1:
        try:
            used = self._feed(data, n)
            self._count(<uint64_t>self.body.tell())
        except TisError:
            self.drop()
            raise
        return used

    cdef Py_ssize_t _feed(self, const unsigned char *data, Py_ssize_t n) except -1:
        cdef Py_ssize_t used
        if self.chunks is not None:
            return self.chunks.feed(data, n, self.body, self.nbytes)
        used = <Py_ssize_t>min(<uint64_t>n, self.nbytes - <uint64_t>self.body.tell())
        self.body.write(data[:used])
        return used

    cdef int _count(self, uint64_t nbytes) except -1:
        """Bodies outside arenas are bounded over all connections, too.  Raises Unavailable."""
        self.shared.collected += nbytes - self.counted
        self.counted = nbytes
        if self.shared.collected > COLLECT_BYTES_MAX:
            raise Unavailable(
                f"requests that are being received outside of models' memory exceed {COLLECT_BYTES_MAX} bytes together; "
                "retry later, or send an inference uncompressed and with a Content-Length")
        return 0

    cdef bint whole(self) except -1:
        return self.chunks.done if self.chunks is not None else <uint64_t>self.body.tell() == self.nbytes

    cdef bytes take(self):
        cdef bytes data = b"" if self.body is None else self.body.getvalue()
        self.drop()
        return data

    cdef int drop(self) except -1:
        self.body = None
        self.chunks = None
        self.shared.collected -= self.counted
        self.counted = 0
        return 0
