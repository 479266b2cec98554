"""Who shares a core with whom, where there are two: client, server and worker.  Layer 4 (front).

With small requests the three take turns, and on two cores two of them share one.  Which two decides more than most of what
can be programmed, and differs by machine and load: where waking a core by a signal of another is slow, a client beside the
server has 2.7 times the requests of one beside the worker; where it is not, one beside the worker had 1.8 times those of
one beside the server, whose core has most to do; and clients of many threads are best off with a core of their own
(docs/benchmarks.md has the figures).  The scheduler sees three busy threads, and leaves them as they are for seconds.

So the kernel is asked now and then on which core a request was sent (SO_INCOMING_CPU), and the worker tells its own.  One
place is the client's home; when it is seen elsewhere time and again, server and worker go where it is at home again.  What
that was worth is measured, and now and then another place is tried: where requests take less time is home from then on.
Whatever was of no use is tried again after a while that grows.  Nobody is pinned: who was moved may run everywhere again at
once, and who was pinned by an operator stays.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint64_t

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
cdef int64_t PAUSE_NS = limits.CORES_PAUSE_MS * 1_000_000
cdef int LOOKS_AWAY = limits.CORES_LOOKS_AWAY
cdef int LOOKS_JUDGED = limits.CORES_LOOKS_JUDGED
cdef int LOOKS_SURE = limits.CORES_LOOKS_SURE
cdef double SPAN_MEANS_MAX = limits.CORES_SPAN_MEANS_MAX
cdef int64_t LOOKS_MEAN = limits.CORES_LOOKS_MEAN
cdef double GAIN_MIN = limits.CORES_GAIN_MIN
cdef double LOSS_MAX = limits.CORES_LOSS_MAX
cdef int64_t RETURN_NS_FIRST = limits.CORES_RETURN_MS_FIRST * 1_000_000
cdef int64_t HOLD_NS_FIRST = limits.CORES_HOLD_MS_FIRST * 1_000_000
cdef int64_t HOLD_NS_MAX = limits.CORES_HOLD_MS_MAX * 1_000_000
cdef int HOLD_GROWTH = limits.CORES_HOLD_GROWTH

cpdef enum:
    STAY = -1
    WITH_SERVER     # and the worker is alone
    WITH_WORKER     # and the server is alone
    ALONE           # and server and worker share the other core
    CROWDED         # all three share a core, which nobody wants


cdef class Places:
    """Where the client shall be, decided by what its requests take."""

    def __cinit__(self):
        self.home = WITH_SERVER
        self.place = STAY
        self.spans = [0] * LOOKS_SURE
        self._forget(0)

    def step(self, int place, int64_t now_ns) -> int:
        """Where the client is to be brought after a look that saw it at `place`; STAY: nowhere."""
        cdef int64_t span_ns = now_ns - self.looked_ns
        self.looked_ns = now_ns
        if span_ns > PAUSE_NS:  # whoever comes now is perhaps somebody else
            self._forget(now_ns)
        if place != self.place or span_ns > LOOK_NS_MAX:
            self.place = place
            self.streak = 0
            return STAY
        self.spans[self.streak % LOOKS_SURE] = span_ns
        self.streak += 1
        self._note(&self.costs[place], span_ns)
        return self._decide(now_ns)

    def begin(self) -> None:
        """What comes now are other requests: what those before took tells nothing of them."""
        cdef int place
        self.streak = 0
        for place in range(CROWDED + 1):
            self.costs[place].looks = 0

    cdef int _decide(self, int64_t now_ns) except -2:
        cdef int target
        cdef bint judged
        if self.target != STAY:
            if self.place == self.target:
                judged = self.streak == LOOKS_AWAY or self.streak == LOOKS_JUDGED or self.streak == LOOKS_SURE
                return self._judge(now_ns) if judged else STAY
            if self.streak == LOOKS_AWAY:
                self._interrupted(now_ns)
            return STAY
        if self.place != self.home and self._is_better(self.place):
            if self.streak >= LOOKS_SURE:
                self._settle_in(self.place, now_ns)
            return STAY
        if self.place != self.home and self._may_return(now_ns):
            return self._go(self.home) if self.streak >= LOOKS_AWAY else STAY
        target = self._next_trial()
        if self.streak < LOOKS_JUDGED or now_ns < self.trials[target].until_ns:
            return STAY
        self.costs[target].looks = 0  # what it takes now
        return self._go(target)

    cdef bint _is_worse(self, int place) noexcept:
        """Than home, as far as both are known.  Where the scheduler takes the client away before a way home can be judged,
        this decides."""
        return self._known(place) >= LOOKS_JUDGED and self._compared(place) > 1 + GAIN_MIN

    cdef bint _is_better(self, int place) noexcept:
        return place != CROWDED and self._known(place) >= LOOKS_SURE and self._compared(place) < 1 - GAIN_MIN

    cdef int64_t _known(self, int place) noexcept:
        """From how many looks the costs of both a place and home are known."""
        cdef int64_t oldest_ns = min(self.costs[place].seen_ns, self.costs[self.home].seen_ns)
        if self.looked_ns - oldest_ns > PAUSE_NS:
            return 0
        return min(self.costs[place].looks, self.costs[self.home].looks)

    cdef double _compared(self, int place) noexcept:
        return self.costs[place].ns / max(self.costs[self.home].ns, 1)

    cdef void _note(self, Cost *cost, int64_t span_ns) noexcept:
        """One more look; the longest ones are those in which the host took a core."""
        cdef double span = span_ns
        if self.looked_ns - cost.seen_ns > PAUSE_NS:
            cost.looks = 0
        cost.seen_ns = self.looked_ns
        cost.looks += 1
        if cost.looks > LOOKS_AWAY:  # requests come in bursts: a few spans may be short, or several times the mean
            span = min(span, SPAN_MEANS_MAX * cost.ns)
        cost.ns += (span - cost.ns) / min(cost.looks, LOOKS_MEAN)

    cdef bint _may_return(self, int64_t now_ns) noexcept:
        return now_ns >= (self.undone if self._is_worse(self.place) else self.returns[self.place]).until_ns

    cdef int _next_trial(self) noexcept:
        """What is to be tried first from here: neither home, which has been, nor this place."""
        cdef int place, first = CROWDED
        for place in range(CROWDED):
            if place != self.home and place != self.place and self.trials[place].until_ns < self.trials[first].until_ns:
                first = place
        return first

    cdef void _forget(self, int64_t now_ns) noexcept:
        cdef int place
        for place in range(CROWDED + 1):
            reset(&self.returns[place], now_ns)
            reset(&self.trials[place], now_ns + HOLD_NS_FIRST)
        self.trials[CROWDED].until_ns = INT64_MAX
        reset(&self.undone, now_ns)
        self.target = STAY

    cdef int _go(self, int target) except -2:
        self.before_ns = self._span_ns()
        self.came_from, self.target = self.place, target
        self.streak = 0
        return target

    cdef int _judge(self, int64_t now_ns) except -2:
        """After LOOKS_AWAY, LOOKS_JUDGED and LOOKS_SURE looks where we wanted it."""
        cdef double ratio = self._span_ns() / self.before_ns
        cdef bint returned = self.target == self.home
        if returned and self._is_worse(self.came_from):
            self._worth_it(now_ns)
            return STAY
        if self.streak == LOOKS_AWAY:
            return STAY if ratio < LOSS_MAX else self._back(now_ns)
        if ratio >= 1 + GAIN_MIN or (ratio > 1 - GAIN_MIN and not returned):
            return self._back(now_ns)
        if returned and ratio > 1 - GAIN_MIN:
            self._in_vain(now_ns)
        elif returned:
            self._worth_it(now_ns)
        elif self.streak == LOOKS_SURE:
            if self._known(self.target) >= LOOKS_SURE and not self._is_better(self.target):
                return self._back(now_ns)
            self._settle_in(self.target, now_ns)
        return STAY

    cdef void _settle_in(self, int place, int64_t now_ns) noexcept:
        self.home = place
        self._forget(now_ns)

    cdef void _worth_it(self, int64_t now_ns) noexcept:
        reset(&self.returns[self.came_from], now_ns)
        reset(&self.undone, now_ns)
        self.target = STAY

    cdef void _in_vain(self, int64_t now_ns) noexcept:
        """Of no use to have come here, or gone again from home before that could be told.  A way home from a place known
        to be worse has only been undone, and is gone again soon."""
        if self.target != self.home:
            lengthen(&self.trials[self.target], now_ns, HOLD_NS_FIRST, HOLD_NS_MAX)
        elif self._is_worse(self.came_from):
            lengthen(&self.undone, now_ns, RETURN_NS_FIRST, HOLD_NS_FIRST)
        else:
            lengthen(&self.returns[self.came_from], now_ns, HOLD_NS_FIRST, HOLD_NS_MAX)
        self.target = STAY

    cdef void _interrupted(self, int64_t now_ns) noexcept:
        """Gone again before it could be told.  Of a place that was tried nothing is known: its time does not grow."""
        cdef Hold *trial = &self.trials[self.target]
        if self.target == self.home:
            self._in_vain(now_ns)
        else:
            trial.until_ns = now_ns + max(trial.ns, HOLD_NS_FIRST)
            self.target = STAY

    cdef int _back(self, int64_t now_ns) noexcept:
        self._in_vain(now_ns)
        self.streak = 0
        return STAY if self.came_from == CROWDED else self.came_from

    cdef double _span_ns(self) except -1:
        """Of a usual look in this streak: the longest ones are those in which the host took a core."""
        cdef int n = min(self.streak, LOOKS_SURE)
        cdef list spans = sorted(self.spans[:n])
        del spans[n - 1 - n // 16 :]
        return max(sum(spans), 1) / <double>len(spans)


cdef void lengthen(Hold *hold, int64_t now_ns, int64_t first_ns, int64_t max_ns) noexcept:
    hold.ns = min(max(HOLD_GROWTH * hold.ns, first_ns), max_ns)
    hold.until_ns = now_ns + hold.ns


cdef void reset(Hold *hold, int64_t until_ns) noexcept:
    hold.ns = 0
    hold.until_ns = until_ns


cdef class Cores:
    """Of one listener."""

    def __cinit__(self):
        cores = os.sched_getaffinity(0)
        self.one, self.other = sorted(cores) if len(cores) == 2 else (-1, -1)
        self.unseen = REQUESTS
        self.places = Places()

    cdef int seen(self, int fd, Runtime runtime, uint64_t nbytes) except -1:
        if nbytes > SMALL_BYTES:
            return 0
        self.unseen -= 1
        if self.unseen:
            return 0
        self.unseen = REQUESTS
        return self._look(fd, runtime) if self.one >= 0 and len(runtime.links) == 1 else 0

    cdef int _look(self, int fd, Runtime runtime) except -1:
        cdef int client = -1, server = sched_getcpu(), place, target, free
        cdef unsigned int nbytes = sizeof(int)
        cdef Link link = <Link>runtime.links[0]
        cdef int worker = link.core()
        getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &client, &nbytes)
        if not link.pid or worker < 0 or (client != self.one and client != self.other):
            return 0
        if link.pid != self.worker_pid:  # what another one's requests take tells nothing
            self.worker_pid = link.pid
            self.places.begin()
        if server == worker:
            place = CROWDED if client == server else ALONE
        else:
            place = WITH_SERVER if client == server else WITH_WORKER
        target = self.places.step(place, now_ns())
        if target != STAY:
            free = self.one + self.other - client
            settle(link.pid, client if target == WITH_SERVER else free, client if target == WITH_WORKER else free)
        return 0


def settle(int worker_pid, int ours, int theirs) -> bool:
    """This thread goes to the core `ours`, and the worker to `theirs`; False when that is not for us to do."""
    try:
        here, there = os.sched_getaffinity(0), os.sched_getaffinity(worker_pid)
        if len(here) != 2 or not {ours, theirs} <= here & there:
            return False
        try:
            os.sched_setaffinity(worker_pid, {theirs})
            os.sched_setaffinity(0, {ours})
        finally:
            os.sched_setaffinity(worker_pid, there)
            os.sched_setaffinity(0, here)
    except OSError:  # the worker has just ended, or a sandbox forbids it
        return False
    return True
