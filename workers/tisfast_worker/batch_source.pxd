# Types for the compiled form of batch_source.py; see setup.py.
cimport cython

from tisfast_worker.csrc_calls cimport Fields as DirectFields


cdef class BatchSource:
    cdef public object _begin, _channel, _completions, _library, _spin_ns, _wait
    cdef public DirectFields _slots
    cdef public Py_ssize_t _head

    cpdef serve(self, pending, serve)

    @cython.locals(head="Py_ssize_t", first="Py_ssize_t", mask="Py_ssize_t", at="Py_ssize_t", count="Py_ssize_t", slot=tuple)
    cpdef list _next(self, pending)
