"""Writes of one connection.  Layer 4 (front).

GIL: held; the socket does not block, so a send costs what the kernel's copy costs.

Under TLS the transport encrypts whatever it is given at once, and does not count what its own transport below then
holds.  So it gets slices, the next one when it has passed on the last: what is encrypted ahead of the client is two
slices, and what the client does not take stays in its arena and is counted here.
"""

from collections import deque

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from tisfast.native.memory cimport View

from tisfast import limits
from tisfast.front.pacing import pace_strangers

cdef extern from "<sys/socket.h>":
    enum: MSG_NOSIGNAL, MSG_DONTWAIT
    struct msghdr:
        iovec *msg_iov
        size_t msg_iovlen
    ssize_t c_send "send"(int fd, const void *data, size_t n, int flags) noexcept
    ssize_t c_sendmsg "sendmsg"(int fd, const msghdr *message, int flags) noexcept

cdef extern from "<sys/ioctl.h>":
    int ioctl(int fd, unsigned long request, int *argument) noexcept

cdef extern from "<linux/sockios.h>":
    enum: SIOCOUTQ

cdef extern from "<string.h>":
    void *memset(void *at, int c, size_t n) noexcept

cdef enum:
    SMALL_BYTES = 8192  # joined into one buffer below: copying this much costs less than a gathered write

cdef Py_ssize_t SLICE_BYTES = limits.TLS_SLICE_BYTES
cdef int FLAGS = MSG_NOSIGNAL | MSG_DONTWAIT


cdef class Sender:
    """transport: uvloop's; its write limits are set so that resume_writing means empty.  direct: the socket may be
    written past the transport (not under TLS)."""

    def __cinit__(self, transport, bint direct=True):
        self.transport = transport
        self.fd = transport.get_extra_info("socket").fileno() if direct else -1
        # Paused is what holds a byte; uvloop's TLS transport would be paused at 0 when it holds none.
        transport.set_write_buffer_limits(high=0 if direct else 1, low=0)
        self.waiting = None if direct else deque()
        pace_strangers(transport)

    cdef int send(self, iovec *pieces, int n, int passing, object owner) except -1:
        cdef char joined[SMALL_BYTES]
        cdef char *end = joined
        cdef msghdr message
        cdef size_t total = 0
        cdef ssize_t sent
        cdef int i
        for i in range(n):
            total += pieces[i].iov_len
        if self.backlog or self.fd < 0:
            return self._queue(pieces, n, passing, owner, 0)
        if total <= SMALL_BYTES:
            for i in range(n):
                memcpy(end, pieces[i].iov_base, pieces[i].iov_len)
                end += pieces[i].iov_len
            sent = c_send(self.fd, joined, total, FLAGS)
        else:
            memset(&message, 0, sizeof(message))
            message.msg_iov = pieces
            message.msg_iovlen = n
            sent = c_sendmsg(self.fd, &message, FLAGS)
        if sent == <ssize_t>total:
            return 0
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.transport.abort()  # the client has reset the connection
                return 0
            sent = 0
        return self._queue(pieces, n, passing, owner, sent)

    cdef int _queue(self, iovec *pieces, int n, int passing, object owner, size_t sent) except -1:
        """Leave what was not sent to the transport."""
        cdef View view
        cdef unsigned char *at
        cdef size_t left
        cdef list rest = []
        cdef int i
        for i in range(n):
            if sent >= pieces[i].iov_len:
                sent -= pieces[i].iov_len
                continue
            at = <unsigned char *>pieces[i].iov_base + sent
            left = pieces[i].iov_len - sent
            sent = 0
            if i < passing:
                rest.append(at[:left])
            else:
                view = View.__new__(View)
                view.aim(owner, at, left, False)
                rest.append(view if self.fd >= 0 else memoryview(view))  # TLS takes slices of it
        if self.waiting is not None:
            self.waiting.extend(rest)
            self.waiting_bytes += sum(map(len, rest))
            return self._drain()
        self.transport.writelines(rest)
        # The transport tries once more before it pauses us; when that took all, no resume_writing follows.
        self.backlog = self.transport.get_write_buffer_size() > 0
        return 0

    cdef int write(self, bytes data) except -1:
        if self.waiting is None:
            self.transport.write(data)
            return 0
        self.waiting.append(data)
        self.waiting_bytes += len(data)
        return self._drain()

    cdef int pause(self) except -1:
        self.paused = self.backlog = True
        return 0

    cdef int resume(self) except -1:
        self.paused = False
        if self.waiting is not None:
            return self._drain()
        self.backlog = False
        return 0

    cdef int _drain(self) except -1:
        """Slices of what waits, until the transport pauses us.  It may pause and resume us within a write."""
        if self.draining:
            return 0
        self.draining = self.backlog = True
        try:
            while self.waiting and not self.paused:
                self._write_slice()
        finally:
            self.draining = False
        self.backlog = self.paused or self.waiting_bytes > 0
        if self.ending and not self.waiting:
            self.transport.close()
        return 0

    cdef int _write_slice(self) except -1:
        cdef Py_ssize_t room = SLICE_BYTES
        cdef Py_ssize_t nbytes
        cdef list pieces = []
        while self.waiting and room > 0:
            piece = self.waiting.popleft()
            nbytes = len(piece)
            if nbytes > room:
                piece = memoryview(piece)
                self.waiting.appendleft(piece[room:])
                piece, nbytes = piece[:room], room
            pieces.append(piece)
            room -= nbytes
            self.waiting_bytes -= nbytes
        self.transport.writelines(pieces)
        return 0

    cdef int close(self) except -1:
        if not self.waiting:
            self.transport.close()
        elif not self.ending:
            self.ending = True
            self.transport.pause_reading()  # a closed transport reads no more, and this one is as good as closed
        return 0

    cdef int drop(self) except -1:
        self.ending = False
        self.waiting_bytes = 0
        if self.waiting is not None:
            self.waiting.clear()
        return 0

    cdef int hold(self, bint held) except -1:
        if held == self.held or self.transport.is_closing():
            return 0
        self.held = held
        if held:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        return 0

    cdef int64_t unread_for(self, int64_t tick) except -1:
        cdef Py_ssize_t unsent = self.unsent() if self.backlog else 0
        if unsent == 0 or unsent != self.unsent_before:
            self.unsent_before = unsent
            self.sent_tick = tick
        return tick - self.sent_tick

    cdef bint arrived(self) except -1:
        cdef int queued = 0
        cdef int fd = self.transport.get_extra_info("socket").fileno()
        # What TLS has not passed on waits for room in the socket, so nothing waits while that is empty.
        return fd >= 0 and self.unsent() == 0 and ioctl(fd, SIOCOUTQ, &queued) == 0 and queued == 0

    cdef Py_ssize_t unsent(self) except -1:
        return self.waiting_bytes + <Py_ssize_t>self.transport.get_write_buffer_size()
