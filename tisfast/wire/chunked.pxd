# Chunked transfer coding (RFC 9112, 7.1), sans-io.  Layer 2 (wire).
from libc.stdint cimport uint64_t

cdef class ChunkDecoder:
    cdef readonly bint done
    cdef readonly Py_ssize_t chunks      # non-empty ones
    cdef Py_ssize_t chunks_max           # HTTP_CHUNKS_MAX; less than 0: any number, where nothing is kept of them
    cdef int state
    cdef uint64_t left                   # bytes of the current chunk, or its size being read
    cdef int digits
    cdef Py_ssize_t line_bytes
    # Consume from data up to the end of the next piece of the body, which is then piece[0] and *piece_bytes long (0: none came).
    # Returns bytes consumed.  Raises BadRequest for what is not chunked coding, or too many chunks.
    cdef Py_ssize_t next(
        self, const unsigned char *data, Py_ssize_t n, const unsigned char **piece, Py_ssize_t *piece_bytes) except -1
    # Consume from data; chunk bytes are written to `out`, a BytesIO that is at its end.  Returns bytes consumed: fewer than n only when done.
    # Raises BadRequest as `next`, and for more than `most` bytes in `out`.
    cdef Py_ssize_t feed(self, const unsigned char *data, Py_ssize_t n, object out, uint64_t most) except -1
    cdef int _byte(self, unsigned char c) except -1
    cdef int _size(self, unsigned char c) except -1
    cdef int _chunk(self) except -1
    cdef int _until_cr(self, unsigned char c, int after) except -1
    cdef int _expect(self, unsigned char c, unsigned char wanted) except -1
