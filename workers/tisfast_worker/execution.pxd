# Types for the compiled form of execution.py; see setup.py.
cimport cython


@cython.freelist(4)
cdef class Execution:
    cdef public object arrays, attempts, deliver, on_gpu, refused, rescheduled, seen, senders, sent, taken_ns
    cdef public list leases, tickets
    cdef public tuple times
