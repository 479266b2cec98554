"""Chunked transfer coding (RFC 9112, 7.1), sans-io.  Layer 2 (wire).

Strict: a bare LF, a missing size or an oversized one is refused, because lenience here is how requests are smuggled.
"""

from libc.stdint cimport uint64_t

from tisfast.errors import BadRequest
from tisfast.limits import HTTP_CHUNKS_MAX, HTTP_HEAD_BYTES_MAX

cdef Py_ssize_t CHUNKS_MAX = HTTP_CHUNKS_MAX
cdef Py_ssize_t LINE_MAX = HTTP_HEAD_BYTES_MAX
cdef int DIGITS_MAX = 15  # of a chunk's size in hex: 2^60 bytes

cdef enum:  # what the next byte belongs to
    SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER_START, TRAILER, TRAILER_LF, END_LF


cdef inline int _hex(unsigned char c) noexcept:
    if 48 <= c <= 57:
        return c - 48
    c |= 32
    return c - 87 if 97 <= c <= 102 else -1


cdef class ChunkDecoder:
    """One chunked body."""

    def __cinit__(self):
        self.chunks_max = CHUNKS_MAX

    cdef Py_ssize_t next(
            self, const unsigned char *data, Py_ssize_t n, const unsigned char **piece, Py_ssize_t *piece_bytes) except -1:
        cdef Py_ssize_t i = 0
        piece_bytes[0] = 0
        while i < n and not self.done:
            if self.state == DATA:
                piece[0] = data + i
                piece_bytes[0] = <Py_ssize_t>min(<uint64_t>(n - i), self.left)
                self.left -= <uint64_t>piece_bytes[0]
                if self.left == 0:
                    self.state = DATA_CR
                return i + piece_bytes[0]
            self._byte(data[i])
            i += 1
        return i

    cdef Py_ssize_t feed(self, const unsigned char *data, Py_ssize_t n, object out, uint64_t most) except -1:
        cdef const unsigned char *piece = NULL
        cdef Py_ssize_t i = 0, piece_bytes = 0
        cdef uint64_t held = out.tell()
        while i < n and not self.done:
            i += self.next(data + i, n - i, &piece, &piece_bytes)
            if held + <uint64_t>piece_bytes > most:
                raise BadRequest(f"chunked body exceeds {most} bytes")
            if piece_bytes:
                out.write(piece[:piece_bytes])
                held += <uint64_t>piece_bytes
        return i

    cdef int _byte(self, unsigned char c) except -1:
        """One byte of framing."""
        self.line_bytes += 1
        if self.line_bytes > LINE_MAX:
            raise BadRequest(f"chunk header or trailer exceeds {LINE_MAX} bytes")
        if self.state == SIZE:
            return self._size(c)
        if self.state == EXTENSION:
            return self._until_cr(c, SIZE_LF)
        if self.state == SIZE_LF:
            self._expect(c, 10)
            return self._chunk()
        if self.state == DATA_CR:
            self._expect(c, 13)
            self.state = DATA_LF
        elif self.state == DATA_LF:
            self._expect(c, 10)
            self.state = SIZE
            self.line_bytes = 0
        elif self.state == TRAILER_START:
            self.state = END_LF if c == 13 else TRAILER
        elif self.state == TRAILER:
            return self._until_cr(c, TRAILER_LF)
        elif self.state == TRAILER_LF:
            self._expect(c, 10)
            self.state = TRAILER_START
        else:
            self._expect(c, 10)
            self.done = True
        return 0

    cdef int _size(self, unsigned char c) except -1:
        cdef int digit = _hex(c)
        if digit >= 0:
            self.digits += 1
            if self.digits > DIGITS_MAX:
                raise BadRequest(f"chunk size has more than {DIGITS_MAX} hex digits")
            self.left = self.left << 4 | <uint64_t>digit
            return 0
        if self.digits == 0 or c not in b"\r; \t":
            raise BadRequest(f"chunk size expected, found byte {c:#04x}")
        self.state = SIZE_LF if c == 13 else EXTENSION
        return 0

    cdef int _chunk(self) except -1:
        self.digits = 0
        self.line_bytes = 0
        if self.left == 0:
            self.state = TRAILER_START
            return 0
        self.chunks += 1
        if self.chunks > self.chunks_max >= 0:
            raise BadRequest(f"chunked body has more than {self.chunks_max} chunks")
        self.state = DATA
        return 0

    cdef int _until_cr(self, unsigned char c, int after) except -1:
        if c == 10:
            raise BadRequest("bare line feed in chunked framing")
        if c == 13:
            self.state = after
        return 0

    cdef int _expect(self, unsigned char c, unsigned char wanted) except -1:
        if c != wanted:
            raise BadRequest(f"byte {wanted:#04x} expected in chunked framing, found {c:#04x}")
        return 0

    def decode(self, bytes data, out, most: int) -> int:
        """`feed` for tests: returns the bytes consumed."""
        return self.feed(data, len(data), out, most)
