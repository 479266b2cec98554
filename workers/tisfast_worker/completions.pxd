# Types for the compiled form of completions.py; see setup.py.
cimport cython

from tisfast_worker.csrc_calls cimport Fields as DirectFields


cdef class Completions:
    cdef public object _reserve, _publish, _ring_bell, _channel, _ring, _bell, _bell_fd, _lock, _acquire, _release, _posted
    cdef public DirectFields _slots
    cdef public Py_ssize_t _mask, _first, _tail, _room
    cdef public dict _retained
    cdef public bint _closed, is_nudged, _is_settling
    cdef public object behind_gpu, _nudge, _settling, loop_thread

    @cython.locals(at="Py_ssize_t", unseen="Py_ssize_t")
    cpdef send(self, list answers, list tickets, list retained, tuple times, batch)

    @cython.locals(at="Py_ssize_t")
    cdef _write(self, tuple answer, ticket, flags, tuple times, batch)
    cdef bint _find_room(self, unseen) except -1
    cdef _show(self, unseen)
