# Types for the compiled form of tensor.py; see setup.py.
cdef class Tensor:
    cdef object __weakref__
    cdef public object _array, _code, _name, _raw


cdef class InputLayout:
    cdef public object array, code, dtype, name, nbytes, shape


cdef class ArenaTensor(Tensor):
    cdef public InputLayout _layout
    cdef public object _lease, _nbytes, _offset
