"""A blocking read whose time a signal does not begin anew.  Layer 1 (native).

The kernel keeps the time (SO_RCVTIMEO): one system call where `poll` and `recv` are two.  Python's own `recv_into` goes on by
itself after a signal, with all of the time again; this one says that a signal came, so its caller sets the rest.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno

import os

cdef extern from "<sys/socket.h>":
    ssize_t recv(int fd, void *to, size_t n, int flags) nogil


def receive_into(int fd, into, int flags=0):
    """Bytes that were read into a buffer, 0: the end; -1: nothing, as its time is over or a signal came.  Raises OSError."""
    cdef Py_buffer view
    cdef ssize_t n
    cdef int code
    PyObject_GetBuffer(into, &view, PyBUF_WRITABLE)
    with nogil:
        n = recv(fd, view.buf, view.len, flags)
        code = errno
    PyBuffer_Release(&view)
    if n >= 0:
        return n
    if code == EINTR:
        PyErr_CheckSignals()
    elif code != EAGAIN:
        raise OSError(code, os.strerror(code))
    return -1
