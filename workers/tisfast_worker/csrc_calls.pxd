# What compiled modules of the runtime may know of csrc_calls.pyx.
cdef class RawMemory:
    cdef object _memory
    cdef char* _base
    cdef Py_ssize_t _nbytes

    cpdef bytes read(self, Py_ssize_t at, Py_ssize_t nbytes)
    cpdef write(self, Py_ssize_t at, bytes raw)


cdef class Fields:
    cdef RawMemory _memory
    cdef bytes _codes
    cdef Py_ssize_t _nbytes

    cpdef tuple read(self, Py_ssize_t at)
    cpdef write(self, Py_ssize_t at, tuple values)
    cdef char* _place(self, Py_ssize_t at) except NULL
