# Types for the compiled form of record.py; see setup.py.
cimport cython


cdef class InputPlan:
    cdef public object output_names, refs, refs_at, rescheduled, senders, strings_at
    cdef public dict position
    cdef public list layouts
    cdef public tuple none, sizes


cdef class RequestReader:
    cdef public object _model, _memory, _foreign, _output_names, _here, _elsewhere
    cdef public dict _plans

    @cython.locals(plan=InputPlan, head=tuple, refs=tuple)
    cpdef read(self, offset, nbytes, lease)
