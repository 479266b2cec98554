"""Writes of one connection.  Layer 4 (front).

GIL: held; the socket does not block, so a send costs what the kernel's copy costs.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memcpy

cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>":
    enum: MSG_NOSIGNAL, MSG_DONTWAIT
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t c_send "send"(int fd, const void *data, size_t n, int flags) noexcept
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags) noexcept

cdef enum:
    SMALL_BYTES = 16384  # joined into one buffer below: copying this much costs less than a second iovec
    PIECES_MAX = 66      # head, body and OUTPUTS_MAX tensors

cdef int FLAGS = MSG_NOSIGNAL | MSG_DONTWAIT


cdef class Sender:
    """transport: uvloop's; its write limits are set so that resume_writing means empty.  direct: the socket may be
    written past the transport (not under TLS)."""

    def __cinit__(self, transport, bint direct=True):
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno() if direct else -1
        transport.set_write_buffer_limits(high=0)

    cdef int send(self, bytes head, bytes body, list tensors) except -1:
        cdef Py_ssize_t total = PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(body)
        cdef object tensor
        if tensors is not None:
            for tensor in tensors:
                total += len(tensor)
            if len(tensors) + 2 > PIECES_MAX:
                tensors = [b"".join(tensors)]
        if self.backlog or self.fd < 0:
            self.backlog = True
            self.transport.writelines([head, body, *(tensors or ())])
            return 0
        if total <= SMALL_BYTES:
            return self._small(head, body, tensors, total)
        return self._gather(head, body, tensors)

    cdef int _small(self, bytes head, bytes body, list tensors, Py_ssize_t total) except -1:
        cdef char joined[SMALL_BYTES]
        cdef char *end = joined
        cdef Py_buffer view
        cdef ssize_t sent
        memcpy(end, PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head))
        end += PyBytes_GET_SIZE(head)
        memcpy(end, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        end += PyBytes_GET_SIZE(body)
        if tensors is not None:
            for tensor in tensors:
                PyObject_GetBuffer(tensor, &view, PyBUF_SIMPLE)
                memcpy(end, view.buf, view.len)
                end += view.len
                PyBuffer_Release(&view)
        sent = c_send(self.fd, joined, total, FLAGS)
        if sent == total:
            return 0
        if sent < 0:
            if errno not in (EAGAIN, EINTR):
                self.transport.abort()
                return 0
            sent = 0
        self.backlog = True
        self.transport.write((<bytes>joined[:total])[sent:])
        return 0

    cdef int _gather(self, bytes head, bytes body, list tensors) except -1:
        cdef iovec pieces[PIECES_MAX]
        cdef Py_buffer views[PIECES_MAX]
        cdef msghdr message
        cdef list buffers = [head, body, *(tensors or ())]
        cdef int n = len(buffers), i
        cdef ssize_t sent
        for i in range(n):
            PyObject_GetBuffer(buffers[i], &views[i], PyBUF_SIMPLE)
            pieces[i].iov_base = views[i].buf
            pieces[i].iov_len = views[i].len
        message = [pieces, n]
        sent = c_sendmsg(self.fd, &message, FLAGS)
        failed = sent < 0 and errno not in (EAGAIN, EINTR)
        for i in range(n):
            PyBuffer_Release(&views[i])
        if failed:
            self.transport.abort()
            return 0
        sent = max(sent, 0)
        rest = []
        for buffer in buffers:
            if sent >= len(buffer):
                sent -= len(buffer)
            else:
                rest.append(memoryview(buffer)[sent:])
                sent = 0
        if rest:
            self.backlog = True
            self.transport.writelines(rest)
        return 0
