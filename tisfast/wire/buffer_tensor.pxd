# Tensors in buffers of a client's: what it sends, and what it receives.  Layer 2 (wire).
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t, uint64_t

cdef class BufferTensor:
    """A named tensor in KServe's binary form: little-endian, rows first; of BYTES each element behind its length in 4 bytes.

    Immutable.  It lies in a buffer that this object keeps, or in a region of shared memory that the server knows.
    """
    cdef readonly str name
    cdef readonly str datatype      # KServe name
    cdef readonly tuple shape       # of int >= 0
    cdef readonly object region     # str: the region's name, and no byte is sent; None: in the buffer
    cdef readonly uint64_t offset   # in the region
    cdef readonly uint64_t nbytes
    cdef int dtype                  # code of types.DataType
    cdef uint64_t elements
    cdef const unsigned char *data  # NULL: in a region
    cdef Py_buffer view
    cdef bint viewed
    cdef int _check_shape(self) except -1
    cdef int _check_size(self) except -1

# Elements in KServe's form; -1 when they do not fill nbytes exactly.
cdef int64_t count_strings(const unsigned char *data, uint64_t nbytes) noexcept
