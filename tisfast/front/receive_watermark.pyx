"""When the kernel wakes the loop for the bytes of a large body, and when others have their turn.  Layer 4 (front).

A client on the same machine that sends 16 MB woke the loop for each 64 KB of them, and spent 6 % of its time doing so:
waking a core costs the one that wakes it.  With SO_RCVLOWAT the kernel collects BODY_WAKE_BYTES first.  The last of a body
comes as it comes (BODY_NEAR_BYTES: the loop is awake then), so nothing is ever waited for that is not to come.

HTTP/1.1 only: in the middle of a body nothing else can arrive.  On HTTP/2 other streams, and a client that waits for us to
enlarge its window, could.

libuv reads up to 32 times in a row what fills its buffer whole: one that filled TURN_BYTES rests until the next turn.
"""

from libc.stdint cimport uint64_t

from tisfast.front.transfer_fairness cimport TransferFairness

from tisfast import tuning
from tisfast.front.transfer_fairness import SHARING

cdef extern from "<sys/socket.h>":
    enum: SOL_SOCKET, SO_RCVLOWAT
    int setsockopt(int fd, int level, int name, const void *value, unsigned int nbytes) noexcept

cdef extern from "<sys/ioctl.h>":
    unsigned long FIONREAD
    int ioctl(int fd, unsigned long request, int *value) noexcept

cdef int WAKE_BYTES = tuning.BODY_WAKE_BYTES
cdef Py_ssize_t TURN_BYTES = tuning.TURN_BYTES
cdef TransferFairness sharing = SHARING
cdef uint64_t FAR_BYTES = tuning.BODY_NEAR_BYTES + tuning.BODY_WAKE_BYTES


cdef class ReceiveWatermark:
    """transport: uvloop's; direct: it reads the socket itself (not under TLS)."""

    def __cinit__(self, transport, bint direct):
        self.fd = transport.get_extra_info("socket").fileno() if direct else -1
        self.mark = 1

    cdef int await_body(self, uint64_t missing) except -1:
        cdef int mark = WAKE_BYTES if missing > FAR_BYTES and self.fd >= 0 else 1
        return 0 if mark == self.mark else self._set(mark)

    cdef int await_any(self) except -1:
        return 0 if self.mark == 1 else self._set(1)

    cdef bint has_bytes(self) noexcept:
        cdef int waiting = 0
        return self.fd >= 0 and ioctl(self.fd, FIONREAD, &waiting) == 0 and waiting > 0

    cdef bint had_turn(self, Py_ssize_t n) noexcept:
        self.moved += n
        if self.moved < TURN_BYTES:
            return False
        sharing.count(self.moved)
        self.moved = 0
        return sharing.wanted()

    cdef int _set(self, int mark) except -1:
        self.mark = mark
        # What is there already wakes the loop.  A system that refuses wakes it for each piece, as before.
        setsockopt(self.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(int))
        return 0
