"""Writes of one connection.  Layer 4 (front).

GIL: held; the socket does not block, so a send costs what the kernel's copy costs.

While small requests come, no connection sends more than TURN_BYTES in one turn of the loop (front/transfer_fairness.pyx):
what is left waits here for the next one.

Under TLS the transport encrypts whatever it is given at once, and does not count what its own transport below then
holds.  So it gets slices, the next one when it has passed on the last: what is encrypted ahead of the client is two
slices, and what the client does not take stays in its arena and is counted here.
"""

from collections import deque

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from tisfast.front.transfer_fairness cimport TransferFairness
from tisfast.native.memory cimport BufferView

from tisfast import limits, tuning
from tisfast.front.congestion_control import pace_strangers
from tisfast.front.transfer_fairness import SHARING

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

cdef TransferFairness sharing = SHARING
cdef Py_ssize_t WHOLE_BYTES = tuning.TURN_WHOLE_BYTES
cdef Py_ssize_t TLS_SLICE_BYTES = tuning.TLS_SLICE_BYTES
cdef int FLAGS = MSG_NOSIGNAL | MSG_DONTWAIT


cdef class SocketWriter:
    """transport: uvloop's; its write limits are set so that resume_writing means empty; loop: its.  direct: the socket may
    be written past the transport (not under TLS)."""

    def __cinit__(self, transport, loop, bint direct=True):
        self.transport = transport
        self.loop = loop
        self.fd = transport.get_extra_info("socket").fileno() if direct else -1
        # Paused is what holds a byte; uvloop's TLS transport would be paused at 0 when it holds none.
        transport.set_write_buffer_limits(high=0 if direct else 1, low=0)
        self.waiting = deque()
        pace_strangers(transport)

    cdef int send(self, iovec *pieces, int n, int passing, object owner) except -1:
        cdef char joined[SMALL_BYTES]
        cdef char *end = joined
        cdef size_t total = 0
        cdef ssize_t sent, turn = -1
        cdef int i
        for i in range(n):
            total += pieces[i].iov_len
        self.sent_bytes += total
        if self.backlog or self.fd < 0:
            self._queue(pieces, n, passing, owner, 0)
            return self._drain()
        if total <= SMALL_BYTES:
            for i in range(n):
                memcpy(end, pieces[i].iov_base, pieces[i].iov_len)
                end += pieces[i].iov_len
            sent = c_send(self.fd, joined, total, FLAGS)
        else:
            turn = sharing.turn(total)
            sent = self._send_turn(pieces, n, turn)
        if sent == <ssize_t>total:
            return 0
        if sent < 0:
            if errno != EAGAIN and errno != EINTR:
                self.transport.abort()  # the client has reset the connection
                return 0
            sent = 0
        self._queue(pieces, n, passing, owner, sent)
        if sent == turn:
            self.backlog = True
            return self._ask_turn()
        return self._drain()

    cdef ssize_t _send_turn(self, iovec *pieces, int n, size_t room) noexcept:
        """The first `room` bytes, by one call."""
        cdef msghdr message
        cdef size_t whole
        cdef ssize_t sent
        cdef int count = 0
        while count < n and pieces[count].iov_len <= room:
            room -= pieces[count].iov_len
            count += 1
        memset(&message, 0, sizeof(message))
        message.msg_iov = pieces
        message.msg_iovlen = count
        if count == n or room == 0:
            return c_sendmsg(self.fd, &message, FLAGS)
        message.msg_iovlen += 1
        whole = pieces[count].iov_len
        pieces[count].iov_len = room
        sent = c_sendmsg(self.fd, &message, FLAGS)
        pieces[count].iov_len = whole
        return sent

    cdef int _queue(self, iovec *pieces, int n, int passing, object owner, size_t sent) except -1:
        """Let wait what was not sent."""
        cdef BufferView view
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
                view = BufferView.__new__(BufferView)
                view.aim(owner, at, left, False)
                rest.append(view if self.fd >= 0 else memoryview(view))  # TLS takes slices of it
        self.waiting.extend(rest)
        self.waiting_bytes += sum(map(len, rest))
        return 0

    cdef int write(self, bytes data) except -1:
        if self.fd >= 0 and not self.waiting:
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
        return self._drain()

    cdef int _drain(self) except -1:
        """Slices of what waits, until the transport pauses us, or others have their turn.  The transport may pause and
        resume us within a write."""
        if self.draining or self.turn_asked:
            return 0
        self.draining = self.backlog = True
        try:
            while self.waiting and not self.paused:
                self._write_slice()
                if sharing.turn(self.waiting_bytes) < self.waiting_bytes:
                    break
        finally:
            self.draining = False
        self.backlog = self.paused or self.waiting_bytes > 0
        if self.waiting:
            return 0 if self.paused else self._ask_turn()
        if self.ending:
            self.transport.close()
        elif self.eof_owed:
            self.eof_owed = False
            self.transport.write_eof()
        return 0

    cdef int _ask_turn(self) except -1:
        if not self.turn_asked:
            self.turn_asked = True
            self.loop.call_soon(self._have_turn)
        return 0

    def _have_turn(self) -> None:
        """The others had theirs.  The transport has room, so it will not call the connection."""
        self.turn_asked = False
        if not self.paused and not self.transport.is_closing():
            self.transport.get_protocol().resume_writing()

    cdef int _write_slice(self) except -1:
        cdef Py_ssize_t room = sharing.turn(self.waiting_bytes) if self.fd >= 0 else TLS_SLICE_BYTES
        cdef Py_ssize_t nbytes
        cdef list pieces = []
        if room == self.waiting_bytes:
            pieces = list(self.waiting)
            self.waiting.clear()
            self.waiting_bytes = 0
            self.transport.writelines(pieces)
            return 0
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
            if self.waiting_bytes > WHOLE_BYTES:
                sharing.count(nbytes)
        self.transport.writelines(pieces)
        return 0

    cdef int close(self) except -1:
        if not self.waiting:
            self.transport.close()
            return 0
        self.ending = True
        return self._update_reading()  # a closed transport reads no more, and this one is as good as closed

    cdef int write_eof(self) except -1:
        if self.waiting:
            self.eof_owed = True
        else:
            self.transport.write_eof()
        return 0

    cdef int drop(self) except -1:
        self.ending = False
        self.waiting_bytes = 0
        self.waiting.clear()
        return 0

    cdef int hold(self, bint held) except -1:
        if held == self.held:
            return 0
        self.held = held
        return self._update_reading()

    cdef int rest(self) except -1:
        if not self.resting:
            self.resting = True
            self.loop.call_soon(self._end_rest)
        return self._update_reading()

    def _end_rest(self) -> None:
        self.resting = False
        self._update_reading()

    cdef int _update_reading(self) except -1:
        cdef bint stopped = self.held or self.resting or self.ending
        if stopped == self.stopped or self.transport.is_closing():
            return 0
        self.stopped = stopped
        if stopped:
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
