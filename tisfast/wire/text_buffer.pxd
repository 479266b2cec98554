# A growable byte buffer that is kept and written again for every answer.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint64_t

cdef class TextBuffer:
    """Owner of `data`.  A user that needs the bytes after the next `reset` copies them or keeps this object."""
    cdef unsigned char *data
    cdef Py_ssize_t used
    cdef Py_ssize_t cap
    cdef int _grow(self, Py_ssize_t n) except -1
    # Makes room for n more bytes and returns where they go; `used` is left to the caller.
    cdef unsigned char *room(self, Py_ssize_t n) except NULL
    cdef int put(self, const void *text, Py_ssize_t n) except -1
    cdef int put_bytes(self, bytes text) except -1
    cdef int put_int(self, int64_t number) except -1
    cdef int put_uint(self, uint64_t number) except -1
    # A JSON string: raw bytes between quotes, escaped as Triton's writer does (bytes from 0x80 up pass unchanged).
    cdef int put_string(self, const unsigned char *text, Py_ssize_t n) except -1
    # Empty again; memory beyond keep_bytes goes back.
    cdef int reset(self, Py_ssize_t keep_bytes) except -1
    cpdef bytes value(self)
