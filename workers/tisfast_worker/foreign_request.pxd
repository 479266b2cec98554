# Types for the compiled form of foreign_request.py; see setup.py.  A method of a compiled class that C calls has no
# cell for super() to look at.
cimport cython

from tisfast_worker.foreign_memory cimport ForeignMemory
from tisfast_worker.request cimport ArenaRequest
from tisfast_worker.tensor cimport ArenaTensor


cdef class ForeignTensor(ArenaTensor):
    cdef public object _copied


cdef class ForeignRequest(ArenaRequest):
    cdef public ForeignMemory _memory
    cdef public dict copies, devices, windows
    cdef public object output_places

    @cython.locals(tensors=list)
    cpdef find(self, name)
    cpdef passed(self, array)
    cdef _place(self, window, offset, nbytes)
