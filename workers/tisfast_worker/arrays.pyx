# cython: binding=False
"""numpy.ndarray(shape, dtype, buffer, offset) for a fifth of the instructions: an array is made for each input of each
request, and numpy's own call spends more on its arguments than on the array.

Needs numpy, so it is imported when a model first asks for an array (tensor.InputLayout.bind).
"""
cimport numpy
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_INCREF

numpy.import_array()

cdef enum:
    RANK_MAX = 8  # beyond, and beyond 1 GiB, numpy's own call has the time
    NBYTES_MAX = 1 << 30

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(
        type subtype, numpy.dtype descr, int nd, numpy.npy_intp* dims, numpy.npy_intp* strides, void* data, int flags,
        void* obj,
    )


def over(tuple shape, numpy.dtype dtype, buffer, Py_ssize_t offset):
    """A writable array over `buffer`, which becomes its base.  Raises what numpy.ndarray raises where it does not fit."""
    cdef Py_buffer view
    cdef numpy.npy_intp[RANK_MAX] dims
    cdef Py_ssize_t nbytes = dtype.itemsize, rank = len(shape), i
    cdef bint plain = rank <= RANK_MAX
    if plain:
        for i in range(rank):
            dims[i] = shape[i]
            plain = plain and 0 < dims[i] < NBYTES_MAX and nbytes < NBYTES_MAX
            nbytes *= dims[i] if plain else 1
    if not plain:
        return numpy.ndarray(shape, dtype, buffer, offset)
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    cdef char* data = <char*>view.buf + offset
    plain = 0 <= offset <= view.len - nbytes
    PyBuffer_Release(&view)  # what the array refers to keeps it where it is, as long as numpy.ndarray's own would
    if not plain:
        return numpy.ndarray(shape, dtype, buffer, offset)
    Py_INCREF(dtype)  # the call takes it
    array = PyArray_NewFromDescr(numpy.ndarray, dtype, <int>rank, dims, NULL, data, numpy.NPY_ARRAY_CARRAY, NULL)
    Py_INCREF(buffer)  # and this one the base
    numpy.PyArray_SetBaseObject(array, buffer)
    return array
