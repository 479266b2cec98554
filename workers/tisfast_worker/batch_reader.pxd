# Types for the compiled form of batch_reader.py; see setup.py.
cimport cython

from tisfast_worker.execution cimport Execution
from tisfast_worker.record cimport RequestReader
from tisfast_worker.request cimport ArenaRequest


cdef class BatchReader:
    cdef public object _foreign, _lease_at, _lease_type
    cdef public RequestReader _reader
    cdef public list free

    @cython.locals(reader=RequestReader, request=ArenaRequest, free=list, leases=list, tickets=list, requests=list)
    cpdef list read(self, list slots, Execution execution)
