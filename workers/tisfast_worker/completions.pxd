# Types for the compiled form of completions.py; see setup.py.
cimport cython


cdef class Completions:
    cdef public object _reserve, _publish, _ring_bell, _channel, _ring, _memory, _bell, _bell_fd, _lock, _posted
    cdef public Py_ssize_t _mask, _first, _tail, _room
    cdef public dict _retained

    @cython.locals(at="Py_ssize_t", unseen="Py_ssize_t")
    cpdef send(self, list answers, list retained, tuple times, batch)
    cdef bint _find_room(self, unseen) except -1
    cdef _show(self, unseen)
