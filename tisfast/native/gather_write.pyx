"""The pieces of one gathered write; see gather_write.pxd.  Layer 1 (native)."""

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.string cimport memcpy

from tisfast import tuning

cdef enum:
    OUTGOING_TEXT_BYTES = (1 << 16) + 8192
    OUTGOING_PIECES = 64         # room at first
    OUTGOING_PIECES_MAX = 512    # a write is full beyond; the kernel takes 1024 of one message's pieces more
    FRAME_HEAD_BYTES = 9
    # A frame head, a copied piece of a body (at most 4096 bytes) and trailers right behind it: one step of nghttp2.
    OUTGOING_USED_MAX = OUTGOING_TEXT_BYTES - FRAME_HEAD_BYTES - 4096 - OUTGOING_PUT_BYTES_MAX
cdef size_t OUTGOING_BYTES_MAX = tuning.GRPC_WRITE_BYTES_MAX


cdef class Outgoing:
    """See gather_write.pxd."""

    def __cinit__(self):
        self.text = <unsigned char *>PyMem_Malloc(OUTGOING_TEXT_BYTES)
        self.pieces = <iovec *>PyMem_Malloc(OUTGOING_PIECES * sizeof(iovec))
        if self.text == NULL or self.pieces == NULL:
            raise MemoryError()
        self.room = OUTGOING_PIECES
        self.owners = []

    def __dealloc__(self):
        PyMem_Free(self.text)
        PyMem_Free(self.pieces)

    cdef int put(self, const void *data, size_t n) except -1:
        cdef unsigned char *at = self.text + self.used
        assert self.used + n <= OUTGOING_TEXT_BYTES
        memcpy(at, data, n)
        self.used += n
        if self.count and <unsigned char *>self.pieces[self.count - 1].iov_base + self.pieces[self.count - 1].iov_len == at:
            self.pieces[self.count - 1].iov_len += n
            self.nbytes += n
            return 0
        return self._piece(at, n)

    cdef int add(self, const void *data, size_t n) except -1:
        return self._piece(data, n)

    cdef int _piece(self, const void *data, size_t n) except -1:
        cdef iovec *grown
        if self.count == self.room:
            grown = <iovec *>PyMem_Realloc(self.pieces, 2 * self.room * sizeof(iovec))
            if grown == NULL:
                raise MemoryError()
            self.pieces = grown
            self.room *= 2
        self.pieces[self.count].iov_base = <void *>data
        self.pieces[self.count].iov_len = n
        self.count += 1
        self.nbytes += n
        return 0

    cdef int keep(self, object owner) except -1:
        if not self.owners or self.owners[len(self.owners) - 1] is not owner:
            self.owners.append(owner)
        return 0

    cdef bint full(self) noexcept:
        return self.used > OUTGOING_USED_MAX or self.count > OUTGOING_PIECES_MAX or self.nbytes > OUTGOING_BYTES_MAX

    cdef int clear(self) except -1:
        self.used = self.nbytes = 0
        self.count = 0
        if self.owners:
            self.owners.clear()
        return 0
