"""Text of answers, written without Python objects in between.  Layer 2 (wire)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

cdef const char *HEX = "0123456789ABCDEF"


cdef class TextBuffer:
    """A growable byte buffer; it starts with `cap` bytes and doubles."""

    def __cinit__(self, Py_ssize_t cap=4096):
        self.data = <unsigned char *>PyMem_Malloc(cap)
        if self.data == NULL:
            raise MemoryError()
        self.cap = cap

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef unsigned char *room(self, Py_ssize_t n) except NULL:
        if self.cap - self.used < n:
            self._grow(n)
        return self.data + self.used

    cdef int _grow(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t cap = max(self.cap * 2, self.used + n)
        cdef unsigned char *data = <unsigned char *>PyMem_Realloc(self.data, cap)
        if data == NULL:
            raise MemoryError()
        self.data = data
        self.cap = cap
        return 0

    cdef int put(self, const void *text, Py_ssize_t n) except -1:
        memcpy(self.room(n), text, n)
        self.used += n
        return 0

    cdef int put_bytes(self, bytes text) except -1:
        return self.put(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    cdef int put_uint(self, uint64_t number) except -1:
        cdef unsigned char digits[20]
        cdef int at = 20
        while True:
            at -= 1
            digits[at] = <unsigned char>(48 + number % 10)
            number //= 10
            if number == 0:
                return self.put(&digits[at], 20 - at)

    cdef int put_int(self, int64_t number) except -1:
        if number >= 0:
            return self.put_uint(<uint64_t>number)
        self.put(b"-", 1)
        return self.put_uint(0 - <uint64_t>number)

    cdef int put_string(self, const unsigned char *text, Py_ssize_t n) except -1:
        cdef unsigned char *out = self.room(6 * n + 2)  # \u00XX for each byte at worst
        cdef unsigned char *start = out
        cdef unsigned char c
        cdef Py_ssize_t i
        out[0] = c'"'
        out += 1
        for i in range(n):
            c = text[i]
            if c >= 0x20 and c != c'"' and c != c'\\':
                out[0] = c
                out += 1
            else:
                out += escape(out, c)
        out[0] = c'"'
        self.used += out + 1 - start
        return 0

    cdef int reset(self, Py_ssize_t keep_bytes) except -1:
        self.used = 0
        if self.cap > keep_bytes:
            PyMem_Free(self.data)
            self.data = NULL
            self.cap = 0
            self._grow(keep_bytes)
        return 0

    cpdef bytes value(self):
        """A copy of what was written."""
        return PyBytes_FromStringAndSize(<char *>self.data, self.used)


# Writes the escape of one byte below 0x20, quote or backslash; returns its length.
cdef int escape(unsigned char *out, unsigned char c) noexcept:
    out[0] = c'\\'
    if c == c'"' or c == c'\\':
        out[1] = c
    elif c == 8:
        out[1] = c'b'
    elif c == 9:
        out[1] = c't'
    elif c == 10:
        out[1] = c'n'
    elif c == 12:
        out[1] = c'f'
    elif c == 13:
        out[1] = c'r'
    else:
        memcpy(out + 1, b"u00", 3)
        out[4] = <unsigned char>HEX[c >> 4]
        out[5] = <unsigned char>HEX[c & 15]
        return 6
    return 2


def quote(bytes text) -> bytes:
    """`text` as a JSON string."""
    cdef TextBuffer out = TextBuffer()
    out.put_string(<const unsigned char *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return out.value()


def number(value: int) -> bytes:
    """A signed or unsigned 64-bit number in decimal."""
    cdef TextBuffer out = TextBuffer()
    if value < 0:
        out.put_int(value)
    else:
        out.put_uint(value)
    return out.value()
