# Types for the compiled form of loop.py; see setup.py.
cimport cython

from tisfast_worker.execution cimport Execution
from tisfast_worker.feed cimport Feed
from tisfast_worker.shower cimport Shower


cdef class Loop:
    cdef public object _completions, _deliver, _foreign, _now, _outputs, _reader, _runner, thread
    cdef public Execution execution
    cdef public Feed feed
    cdef public Shower _shower

    @cython.locals(execution=Execution)
    cpdef serve(self, list slots)
