"""Bodies outside arenas; see body_collector.pxd.  Layer 4 (front)."""

import os
from io import BytesIO

from libc.stdint cimport uint64_t
from posix.unistd cimport close

from tisfast import limits
from tisfast.errors import BadRequest, TisError, Unavailable

cdef uint64_t COLLECT_BYTES_MAX = limits.HTTP_COLLECT_BYTES_MAX


cdef class SpilledBody:
    """See body_collector.pxd.  Raises Unavailable when there is no descriptor left."""

    def __cinit__(self):
        self.fd = -1
        try:
            self.fd = os.memfd_create("tisfast-body", os.MFD_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"a body cannot be received: {error.strerror}; retry later") from None

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    def fileno(self) -> int:
        """The file's descriptor."""
        return self.fd

    def write(self, data) -> None:
        """Append all of it.  Raises Unavailable when there is no memory left."""
        rest = memoryview(data)
        while len(rest):
            try:
                written = os.write(self.fd, rest)
            except OSError as error:
                raise Unavailable(f"a body of {self.nbytes} bytes and more cannot be kept: {error.strerror}") from None
            self.nbytes += <uint64_t>written
            rest = rest[written:]


cdef class BodyCollector:
    """See body_collector.pxd."""

    def __cinit__(self, ListenerContext shared):
        self.shared = shared

    cdef int begin(self, uint64_t nbytes, bint chunked, bint spills) except -1:
        self.spills = spills
        self.body = SpilledBody() if spills and not chunked and nbytes > self.shared.codec_bytes_min else BytesIO()
        self.nbytes = nbytes
        return 0

    cdef int add(self, const unsigned char *data, Py_ssize_t n) except -1:
        try:
            if self.counted + <uint64_t>n > self.nbytes:
                raise BadRequest(f"chunked body exceeds {self.nbytes} bytes")
            self.body.write(data[:n])
            self._count(<uint64_t>n)
            if self.spills and self.counted > self.shared.codec_bytes_min and type(self.body) is BytesIO:
                self._spill()
        except TisError:
            self.drop()
            raise
        return 0

    cdef int _count(self, uint64_t nbytes) except -1:
        """Bodies outside arenas are bounded over all connections, too.  Raises Unavailable."""
        self.shared.collected += nbytes
        self.counted += nbytes
        if self.shared.collected > COLLECT_BYTES_MAX:
            raise Unavailable(
                f"requests that are being received outside of models' memory exceed {COLLECT_BYTES_MAX} bytes together; "
                "retry later, or send an inference uncompressed and with a Content-Length")
        return 0

    cdef int _spill(self) except -1:
        """A chunked body has turned out to be a large one."""
        spilled = SpilledBody()
        spilled.write(self.body.getbuffer())
        self.body = spilled
        return 0

    cdef bytes take(self):
        cdef bytes data = b"" if self.body is None else self.body.getvalue()
        self.drop()
        return data

    cdef SpilledBody spilled(self):
        return <SpilledBody>self.body if type(self.body) is SpilledBody else None

    cdef int drop(self) except -1:
        self.body = None
        self.shared.collected -= self.counted
        self.counted = 0
        return 0
