# Types for the compiled form of request.py; see setup.py.
cimport cython

from tisfast_worker.record cimport InputPlan
from tisfast_worker.tensor cimport ArenaTensor


cdef class InferenceRequest:
    cdef object __weakref__
    cdef public object _correlation, _flags, _id, _model_name, _model_version, _parameters, _preferred, _requested
    cdef public object _timeout, _trace
    cdef public list _tensors
    cpdef find(self, name)


cdef class ArenaRequest(InferenceRequest):
    cdef public object _execution, _lease, _sender, _strings_at, batch
    cdef public tuple _head, _refs
    cdef public InputPlan _plan

    @cython.locals(tensors=list, tensor=ArenaTensor, refs=tuple)
    cpdef find(self, name)
