"""Who shares a core with whom, where there are two: the client with the server, and the worker with nobody.  Layer 4 (front).

With small requests server, worker and client take turns, and on two cores two of them share one.  A client beside the
server is woken by it at once.  One that has the worker's core is woken by a signal to another core, which a virtual
machine is slow at, and takes turns with a worker that waits by yielding (docs/benchmarks.md has the figures).  The
scheduler sees three busy threads, and leaves either as it is for seconds.

So the kernel is asked now and then on which core a request was sent (SO_INCOMING_CPU).  When that is the other one time
and again, the server goes there, and the worker to where the server was.  Whether that was worth it is measured: with
requests that cost the server more, or clients of many threads, it is not, and it is tried again only after a while.
Nobody is pinned: who was moved may run everywhere again at once, and who was pinned by an operator stays.
"""

from libc.stdint cimport int64_t, uint64_t

import os

from tisfast import limits
from tisfast.engine.core cimport Link
from tisfast.native.memory import now_ns

cdef extern from "<sched.h>" nogil:
    int sched_getcpu() noexcept

cdef extern from "<sys/socket.h>" nogil:
    enum: SOL_SOCKET, SO_INCOMING_CPU
    int getsockopt(int fd, int level, int name, void *value, unsigned int *nbytes) noexcept

cdef uint64_t SMALL_BYTES = limits.CORES_SMALL_BYTES
cdef int REQUESTS = limits.CORES_LOOK_REQUESTS
cdef int64_t LOOK_NS_MAX = limits.CORES_LOOK_US_MAX * 1000
cdef int LOOKS_APART = limits.CORES_LOOKS_APART
cdef int LOOKS_JUDGED = limits.CORES_LOOKS_JUDGED
cdef double GAIN_MIN = limits.CORES_GAIN_MIN
cdef int64_t HOLD_NS_FIRST = limits.CORES_HOLD_MS_FIRST * 1_000_000
cdef int64_t HOLD_NS_MAX = limits.CORES_HOLD_MS_MAX * 1_000_000


cdef class Cores:
    """Of one listener."""

    def __cinit__(self):
        cores = os.sched_getaffinity(0)
        self.one, self.other = sorted(cores) if len(cores) == 2 else (-1, -1)
        self.unseen = REQUESTS

    cdef int seen(self, int fd, Runtime runtime, uint64_t nbytes) except -1:
        if nbytes > SMALL_BYTES:
            return 0
        self.unseen -= 1
        if self.unseen:
            return 0
        self.unseen = REQUESTS
        return self._look(fd, runtime) if self.one >= 0 and len(runtime.links) == 1 else 0

    cdef int _look(self, int fd, Runtime runtime) except -1:
        cdef int client = -1, server = sched_getcpu()
        cdef unsigned int nbytes = sizeof(int)
        cdef Link link = <Link>runtime.links[0]
        getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &client, &nbytes)
        if link.pid and (client == self.one or client == self.other) and self.step(client == server, now_ns()):
            change_places(link.pid, server)
        return 0

    def step(self, bint together, int64_t now_ns) -> bool:
        """Whether server and worker should change places, after a look that saw the client beside the server, or not."""
        if together != self.together or now_ns - self.looked_ns > LOOK_NS_MAX:
            self.together = together
            self.streak = 0
            self.streak_ns = self.looked_ns = now_ns
            return False
        self.looked_ns = now_ns
        self.streak += 1
        if together:
            return self.judging and self.streak == LOOKS_JUDGED and self._judge(now_ns)
        if self.streak < LOOKS_APART or now_ns < self.hold_until_ns:
            return False
        if self.judging:  # apart again before it could be told
            self.judging = False
            self._hold(now_ns)
            return False
        self.judging = True
        self.apart_ns = (now_ns - self.streak_ns) // self.streak
        self.streak = 0
        self.streak_ns = now_ns
        return True

    cdef bint _judge(self, int64_t now_ns) noexcept:
        """Whether to leave the client again."""
        cdef double ratio = <double>(now_ns - self.streak_ns) / self.streak / max(self.apart_ns, 1)
        self.judging = False
        if ratio <= 1 - GAIN_MIN:
            self.hold_ns = 0
            return False
        self._hold(now_ns)
        return ratio >= 1 + GAIN_MIN

    cdef void _hold(self, int64_t now_ns) noexcept:
        self.hold_ns = min(max(2 * self.hold_ns, HOLD_NS_FIRST), HOLD_NS_MAX)
        self.hold_until_ns = now_ns + self.hold_ns


def change_places(int worker_pid, int core) -> bool:
    """This thread goes to the other one of its two cores, and the worker to `core`; False when that is not ours to do."""
    try:
        ours, theirs = os.sched_getaffinity(0), os.sched_getaffinity(worker_pid)
        if len(ours) != 2 or core not in ours or core not in theirs:
            return False
        try:
            os.sched_setaffinity(worker_pid, {core})
            os.sched_setaffinity(0, ours - {core})
        finally:
            os.sched_setaffinity(worker_pid, theirs)
            os.sched_setaffinity(0, ours)
    except OSError:  # the worker has just ended, or a sandbox forbids it
        return False
    return True
