# Types for the compiled form of answer.py; see setup.py.
cimport cython

from tisfast_worker.response cimport InferenceResponse
from tisfast_worker.tensor cimport Tensor


cdef class Layout:
    cdef public object head, joined, passed, record, record_bytes, refs, total
    cdef public list gaps, sizes


cdef class AnswerWriter:
    cdef public object _all, _arena, _memory, _model, _offset, _specs, _take
    cdef public dict _layouts

    cpdef write(self, request, response)
    cpdef error(self, code, text)
    cpdef full(self, error)

    @cython.locals(layout=Layout, tensors=list, tensor=Tensor, facts=list, key=tuple, sources=list, parts=list)
    cdef _write(self, request, InferenceResponse response)

    @cython.locals(layout=Layout, refs=list)
    cdef _write_passed(self, Layout layout, list sources)
