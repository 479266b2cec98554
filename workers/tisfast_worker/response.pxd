# Types for the compiled form of response.py; see setup.py.
cdef class InferenceResponse:
    cdef object __weakref__
    cdef public object _error, _parameters
    cdef public list _tensors
