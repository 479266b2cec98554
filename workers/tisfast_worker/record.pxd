# Types for the compiled form of record.py; see setup.py.
cimport cython

from tisfast_worker.csrc_calls cimport Fields as DirectFields, RawMemory as DirectMemory


cdef class InputPlan:
    cdef public object output_names
    cdef public DirectFields refs
    cdef public Py_ssize_t refs_at, strings_at
    cdef public dict position
    cdef public list layouts
    cdef public tuple none, sizes


cdef class RequestReader:
    cdef public object _model, _foreign, _output_names, _here, _elsewhere
    cdef public DirectMemory _memory
    cdef public DirectFields _head
    cdef public dict _plans

    @cython.locals(plan=InputPlan, head=tuple, refs=tuple, at="Py_ssize_t")
    cpdef read(self, Py_ssize_t offset, nbytes, lease, execution)
