# Types for the compiled form of answer_record.py; see setup.py.
cimport cython

from tisfast_worker.csrc_calls cimport Fields as DirectFields, RawMemory as DirectMemory
from tisfast_worker.response cimport InferenceResponse
from tisfast_worker.tensor cimport ArenaTensor, Tensor


cdef class Layout:
    cdef public object joined, looked_at, passed, record, record_bytes, total
    cdef public bytes head
    cdef public DirectFields refs
    cdef public Py_ssize_t refs_at
    cdef public list gaps, sizes


cdef class AnswerWriter:
    cdef public object _all, _arena, _differences, _memory, _model, _offset, _reserved, _specs, _take, _trace
    cdef public object device_arena, device_lost, pinned
    cdef public Py_ssize_t _count
    cdef public dict _layouts
    cdef public DirectMemory _raw

    cpdef write(self, request, response)
    cpdef error(self, code, text)
    cpdef full(self, error)

    @cython.locals(layout=Layout, tensor=Tensor, facts=list, key=tuple, sources=list, parts=list)
    cdef _write(self, request, InferenceResponse response, list tensors)

    @cython.locals(layout=Layout, refs=list, at="Py_ssize_t")
    cdef _write_passed(self, Layout layout, list sources)


@cython.locals(tensors=list, tensor=Tensor, own=ArenaTensor)
cdef tuple _passed(array, request)
