# Types for the compiled form of runner.py; see setup.py.
from tisfast_worker.execution cimport Execution


cdef class Runner:
    cdef public object _execute, _retry

    cpdef run(self, requests, Execution execution)
    cpdef _attempt(self, requests, Execution execution)
