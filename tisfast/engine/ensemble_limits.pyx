"""max_inflight_requests of an ensemble; see ensemble_limits.pxd.  Layer 3 (engine)."""

from collections import deque

from tisfast.limits import ENSEMBLE_WAITING_MAX as _WAITING_MAX

cdef Py_ssize_t WAITING_MAX = _WAITING_MAX


cdef class StepLimits:
    """steps: how many there are; running_max: of each."""

    def __cinit__(self, Py_ssize_t steps, running_max):
        self.running_max = running_max
        self.running = [0] * steps
        self.queues = [deque() for _ in range(steps)]

    cdef int enter(self, int step, object owner, object who) except -1:
        if self.running[step] < self.running_max and not self.queues[step]:
            self.running[step] += 1
            return Entry.ADMITTED
        if self.waiting >= WAITING_MAX:
            return Entry.NO_ROOM
        self.queues[step].append((owner, who))
        self.waiting += 1
        return Entry.WAITS

    cdef int leave(self, int step) except -1:
        self.running[step] -= 1
        return 0

    cdef object admit_next(self):
        for step in range(len(self.queues)):
            if self.queues[step] and self.running[step] < self.running_max:
                self.running[step] += 1
                self.waiting -= 1
                return self.queues[step].popleft()[1]
        return None

    cdef int forget(self, object owner) except -1:
        for step in range(len(self.queues)):
            kept = deque([entry for entry in self.queues[step] if entry[0] is not owner])
            self.waiting -= len(self.queues[step]) - len(kept)
            self.queues[step] = kept
        return 0
