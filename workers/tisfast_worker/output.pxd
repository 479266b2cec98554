# Types for the compiled form of output.py; see setup.py.
from tisfast_worker.native cimport Mapping


cdef class OutputArena(Mapping):
    cdef public object _advance, _arena, _channel, _collect, _delete, _fd, _give, _pending, _ring, _take, _trim
    cdef public object _used_blocks, _used_bytes, _owned, before_wait, owners, use_bytes_max
    cdef public Py_ssize_t _head, _mask, _out, _slots_at
    cdef public bint _large_out

    cpdef take(self, nbytes)
    cpdef take_now(self, nbytes)
    cpdef collect_some(self)
    cpdef collect(self)
