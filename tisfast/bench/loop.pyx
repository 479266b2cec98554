"""Requests go when they are due, answers are counted; see loop.pxd.  Layer 5 (bench).

Closed loop: so many requests are under way, and the next one goes when an answer has come.  Open loop: each has its intended
time, which never moves.  A request that finds no connection with a place waits in the schedule, and its waiting is latency.

GIL: let go in epoll_wait, where the threads that ask for statistics and metrics run.  Python's handlers of signals run when
`run` has returned, which is after 0.1 s at most.  One class fills most of this file.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset
from tisfast.bench.histogram cimport tf_histogram_record
from tisfast.bench.kernel cimport CLOCK_MONOTONIC, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, \
    TFD_CLOEXEC, TFD_NONBLOCK, TFD_TIMER_ABSTIME, epoll_create1, epoll_ctl, epoll_event, epoll_wait, itimerspec, monotonic, \
    read, timerfd_create, timerfd_settime

import os
import socket

from tisfast import limits, tuning
from tisfast.errors import TisError, Unavailable
from tisfast.bench.results import DELAYED, FAILED, RECORD

import numpy as np

cdef extern from *:
    """
    struct bench_record {
        int64_t intended, sent, first, last;
        uint64_t sequence_id;
        uint32_t sent_bytes, received_bytes, step, responses;
        uint16_t status, flags;
        uint32_t connection;
    };
    """
    struct bench_record:
        int64_t intended, sent, first, last
        uint64_t sequence_id
        uint32_t sent_bytes, received_bytes, step, responses
        uint16_t status, flags
        uint32_t connection

cdef enum:
    EVENTS = 256                    # of one epoll_wait
    TURN = 64                       # requests that go between two looks at what has come
    UINT32_TOP = 0xFFFFFFFF
cdef uint64_t TIMER = <uint64_t>-1
cdef int64_t SECOND = 1_000_000_000
cdef int64_t LATE_NS = 1_000_000
cdef int64_t GONE_NS = int(limits.BENCH_GONE_SECONDS * 1e9)
cdef int64_t RETRY_NS = int(tuning.BENCH_RETRY_SECONDS * 1e9)
cdef int RETRIES_DOUBLED = 5
cdef int ERROR_TEXTS_MAX = limits.BENCH_ERROR_TEXTS_MAX
cdef Py_ssize_t ROOM_BYTES = tuning.BENCH_RECEIVE_BYTES
cdef uint16_t FLAG_FAILED = FAILED
cdef uint16_t FLAG_DELAYED = DELAYED


cdef class Tally:
    """See loop.pxd."""

    def __cinit__(self):
        self.response, self.service, self.first_byte, self.lateness = Histogram(), Histogram(), Histogram(), Histogram()
        self.began_ns = monotonic()


cdef class Load:
    """See loop.pxd.  Cython has no abstract methods: what raises here is overridden."""

    def __cinit__(self, Loop loop, *_, **__):
        self.loop, self.fd, self.places = loop, -1, 1

    cdef int on_open(self) except -1:
        return 0

    cdef int on_readable(self) except -1:
        raise NotImplementedError("on_readable")

    cdef int begin(self, Slot *slot) except -1:
        raise NotImplementedError("begin")

    cdef int flush(self) except -1:
        raise NotImplementedError("flush")

    cdef int on_lost(self, str text) except -1:
        raise NotImplementedError("on_lost")

    cdef int want_out(self, bint wanted) except -1:
        cdef epoll_event event
        if wanted == self.wants_out or self.fd < 0:
            return 0
        self.wants_out = wanted
        event.events = EPOLLIN | (EPOLLOUT if wanted else 0)
        event.data.u64 = self.number
        if epoll_ctl(self.loop.epoll, EPOLL_CTL_MOD, self.fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    cdef int done(self, Slot *slot, int64_t now, int status) except -1:
        self.busy -= 1
        return self.loop.ended(self, slot, now, status, True)

    cdef int failed(self, Slot *slot, int64_t now, str status, str text) except -1:
        self.busy -= 1
        self.loop.error(status, text, now)
        return self.loop.ended(self, slot, now, int(status) if status.isdigit() else 0, False)

    cdef int renew(self) except -1:
        self.loop.close_load(self)
        return self.loop.opening(self)


cdef class Loop:
    """address: of socket.connect; family: of the socket; slots: requests under way at most; connections_max: that it opens.

    make(loop): a further connection, a Load.  templates: what its `begin` sends, one for each step of the input data.
    """

    def __init__(self, address, int family, make, list templates, *, uint32_t slots, int connections_max):
        cdef epoll_event event
        cdef uint32_t i
        self.address, self.family, self.make, self.templates = address, family, make, templates
        if not 0 < slots <= 1 << SLOT_BITS:
            raise ValueError(f"{slots} requests under way; 1 to {1 << SLOT_BITS} can be")
        self.slots_max, self.connections_max = slots, connections_max
        self.slots = <Slot *>PyMem_Calloc(slots, sizeof(Slot))
        self.free_slots = <uint32_t *>PyMem_Calloc(slots, sizeof(uint32_t))
        if self.slots == NULL or self.free_slots == NULL:
            raise MemoryError()
        for i in range(slots):
            self.slots[i].index = i
            self.free_slots[i] = slots - 1 - i
        self.free_count = slots
        self.loads, self.free_loads, self.broken = [], [], []
        self.lost_text = ""
        self.scratch = bytearray(ROOM_BYTES)
        self.room, self.room_bytes = <unsigned char *>PyByteArray_AS_STRING(self.scratch), ROOM_BYTES
        self.errors = {}
        self.tally, self.slice = Tally(), Histogram()
        self.left = -1
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        self.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        event.events, event.data.u64 = EPOLLIN, TIMER
        if self.epoll < 0 or self.timer < 0 or epoll_ctl(self.epoll, EPOLL_CTL_ADD, self.timer, &event) < 0:
            raise OSError(errno, os.strerror(errno))

    def __cinit__(self, *_, **__):
        self.epoll = self.timer = -1

    def __dealloc__(self):
        PyMem_Free(self.slots)
        PyMem_Free(self.free_slots)
        if self.timer >= 0:
            os.close(self.timer)
        if self.epoll >= 0:
            os.close(self.epoll)

    # ---- what is to be sent

    def keep_in_flight(self, int concurrency) -> None:
        """Closed loop from now on: so many requests are under way."""
        self.concurrency = concurrency
        self.due = self.due_end = 0

    def follow(self, times) -> None:
        """Open loop: requests go at these times (ns of CLOCK_MONOTONIC, rising), behind those of which it knows already."""
        known = self.known[self.due:self.due_end] if self.due < self.due_end else np.empty(0, np.int64)
        self.known = np.ascontiguousarray(np.concatenate([known, times]), np.int64)
        self.schedule = <int64_t *><size_t>self.known.ctypes.data
        self.concurrency = 0
        self.due, self.due_end = 0, len(self.known)

    def allow(self, int64_t count) -> None:
        """So many further requests begin at most; -1: any number."""
        self.left = count

    def end(self) -> int:
        """Nothing further is due: what was due before still goes.  Gives the number of requests that wait."""
        cdef int64_t now = monotonic()
        cdef Py_ssize_t end = self.due
        while end < self.due_end and self.schedule[end] <= now:
            end += 1
        self.due_end = end
        self.left = end - self.due
        return self.left

    @property
    def scheduled(self) -> int:
        """Requests of the schedule that have not left."""
        return self.due_end - self.due

    @property
    def in_flight(self) -> int:
        """Requests that are under way."""
        return self.slots_max - self.free_count

    @property
    def connections(self) -> int:
        """Connections, open or not."""
        return len(self.loads)

    def open_connections(self, int count) -> None:
        """Begin to open connections, until there are so many."""
        while len(self.loads) < min(count, self.connections_max):
            self._grow()

    def _grow(self):
        cdef Load load = self.make(self)
        load.number = <uint32_t>len(self.loads)
        self.loads.append(load)
        self.opening(load)

    def ready(self, int64_t until) -> bool:
        """Wait until all connections are open, or until `until`, or until one cannot be made: `lost_text` says why."""
        while self.opened < len(self.loads) and monotonic() < until and not self.broken:
            self.run(min(until, monotonic() + SECOND // 20))
        return self.opened == len(self.loads)

    # ---- what was counted

    def swap(self) -> Tally:
        """What was counted since the last call."""
        cdef Tally told = self.tally
        self.tally = Tally()
        told.ended_ns = self.tally.began_ns
        return told

    def swap_slice(self) -> tuple:
        """Of the time since the last call: answers, and their latencies from the intended times."""
        told = self.slice_responses, self.slice
        self.slice, self.slice_responses = Histogram(), 0
        return told

    def swap_errors(self) -> tuple:
        """Errors since the last call: counts by (status, text), and the first one, (text, ns), or None."""
        told = self.errors, self.first_error
        self.errors, self.first_error = {}, None
        return told

    def keep_records(self, Py_ssize_t count) -> None:
        """Keep a record of each request, `count` of them at most; see `swap_records`."""
        self.records = np.zeros(count, RECORD)
        self.record_at = <uint8_t *><size_t>self.records.ctypes.data
        self.records_count, self.records_max, self.records_missed = 0, count, 0

    def swap_records(self) -> tuple:
        """The records since the last call, in the order in which the requests ended, and how many more found no room."""
        told = self.records[:self.records_count], self.records_missed
        self.keep_records(self.records_max)  # pages that no record touches take no memory
        return told

    # ---- the loop

    def run(self, int64_t until) -> bool:
        """Send and receive until `until`.  False: it ended before, because nothing is under way and nothing can go any more.

        Raises Unavailable when the server cannot be reached for limits.BENCH_GONE_SECONDS.
        """
        cdef epoll_event events[EVENTS]
        cdef int64_t now = monotonic(), awake, rang
        cdef int n, i, timeout
        while now < until:
            if self.broken:
                self.reopen(now)
            self.spread()
            if self.left == 0 and self.free_count == self.slots_max:
                return False
            timeout = self.wait_ms(now, until)
            if timeout:
                self.arm()
            now = monotonic()
            with nogil:
                n = epoll_wait(self.epoll, events, EVENTS, timeout)
                awake = monotonic()
            self.tally.idle_ns += awake - now
            self.tally.gil_ns += monotonic() - awake  # this process's other threads held it
            if n < 0:
                if errno == EINTR:
                    return True
                raise OSError(errno, os.strerror(errno))
            for i in range(n):
                if events[i].data.u64 == TIMER:
                    self.timer_at = 0
                    read(self.timer, &rang, 8)
                else:
                    self.event(<Load>self.loads[events[i].data.u64], events[i].events)
            now = monotonic()
        return True

    cdef int wait_ms(self, int64_t now, int64_t until) noexcept:
        if self.free_loads and self.may_begin(now):
            return 0
        if self.broken:
            until = min(until, now + RETRY_NS)
        return <int>max((until - now + 999_999) // 1_000_000, 0)

    cdef int arm(self) except -1:
        """The timer rings when the next request is due; for one that waits for a place it need not."""
        cdef itimerspec at
        cdef int64_t next
        if self.due >= self.due_end or self.left == 0 or not (self.free_loads or self.opened + self.connecting < self.connections_max):
            return 0
        next = self.schedule[self.due]
        if next == self.timer_at:
            return 0
        memset(&at, 0, sizeof(at))
        at.it_value.tv_sec, at.it_value.tv_nsec = next // SECOND, next % SECOND
        if timerfd_settime(self.timer, TFD_TIMER_ABSTIME, &at, NULL) < 0:
            raise OSError(errno, os.strerror(errno))
        self.timer_at = next
        return 0

    cdef bint may_begin(self, int64_t now) noexcept:
        if self.left == 0 or self.free_count == 0:
            return False
        if self.concurrency:
            return <int64_t>self.slots_max - self.free_count < self.concurrency
        return self.due < self.due_end and self.schedule[self.due] <= now

    cdef Slot *take(self, int64_t now) except NULL:
        cdef Slot *slot
        self.free_count -= 1
        slot = &self.slots[self.free_slots[self.free_count]]
        slot.intended = now
        if not self.concurrency:
            slot.intended = self.schedule[self.due]
            self.due += 1
        if self.left > 0:
            self.left -= 1
        self.serial += 1
        slot.serial = self.serial
        slot.step = self.step
        self.step = (self.step + 1) % <uint32_t>len(self.templates)
        slot.sent = now
        slot.first = 0
        slot.sequence_id = slot.sent_bytes = slot.received_bytes = 0
        slot.responses = 0
        self.tally.requests += 1
        if not self.concurrency:
            tf_histogram_record(&self.tally.lateness.counts, max(now - slot.intended, 0))
            if now - slot.intended > LATE_NS:
                self.tally.delayed += 1
        return slot

    cdef int refill(self, Load load) except -1:
        """Begin requests on it while it has places and some are due; behind that it is offered to those that come."""
        cdef int64_t now, after
        cdef Slot *slot
        cdef int begun = 0
        if load.state != OPEN:
            return 0
        now = monotonic()
        while load.busy < load.places and begun < TURN and self.may_begin(now):
            slot = self.take(now)
            slot.load = load.number
            load.busy += 1
            begun += 1
            try:
                load.begin(slot)
            except TisError as error:
                return self.lose(load, error.message)
            after = monotonic()
            self.tally.send_ns += after - now
            now = after
        try:
            load.flush()
        except TisError as error:
            return self.lose(load, error.message)
        if begun:
            self.tally.send_ns += monotonic() - now
        return self.offer(load)

    cdef int offer(self, Load load) except -1:
        if load.state == OPEN and load.busy < load.places and not load.listed:
            load.listed = True
            self.free_loads.append(load)
        return 0

    cdef int spread(self) except -1:
        """Give what is due to connections that have a place; open another one where there is none."""
        cdef int64_t now = monotonic()
        cdef Load load
        cdef int turn = 0
        while turn < TURN and self.may_begin(now):
            turn += 1
            if self.free_loads:
                load = <Load>self.free_loads.pop()
                load.listed = False
                self.refill(load)
            else:
                if self.connecting == 0 and not self.broken and len(self.loads) < self.connections_max:
                    self._grow()
                break
        return 0

    cdef int ended(self, Load load, Slot *slot, int64_t now, int status, bint good) except -1:
        cdef Tally tally = self.tally
        if good:
            tally.completed += 1
            tally.responses += slot.responses
            tf_histogram_record(&tally.response.counts, now - slot.intended)
            tf_histogram_record(&tally.service.counts, now - slot.sent)
            tf_histogram_record(&tally.first_byte.counts, (slot.first or now) - slot.sent)
            tally.receive_ns += now - (slot.first or now)
            tf_histogram_record(&self.slice.counts, now - slot.intended)
            self.slice_responses += 1
        else:
            tally.failed += 1
        tally.sent_bytes += slot.sent_bytes
        tally.received_bytes += slot.received_bytes
        if self.record_at != NULL:
            self.note(load, slot, now, status, good)
        slot.serial = 0
        self.free_slots[self.free_count] = slot.index
        self.free_count += 1
        return 0

    cdef int note(self, Load load, Slot *slot, int64_t now, int status, bint good) except -1:
        cdef bench_record *record
        if self.records_count == self.records_max:
            self.records_missed += 1
            return 0
        record = <bench_record *>self.record_at + self.records_count
        self.records_count += 1
        record.intended, record.sent, record.first, record.last = slot.intended, slot.sent, slot.first or now, now
        record.sequence_id, record.step, record.responses = slot.sequence_id, slot.step, slot.responses
        record.sent_bytes = <uint32_t>min(slot.sent_bytes, <uint64_t>UINT32_TOP)
        record.received_bytes = <uint32_t>min(slot.received_bytes, <uint64_t>UINT32_TOP)
        record.status, record.connection = <uint16_t>status, load.number
        record.flags = (0 if good else FLAG_FAILED) | (FLAG_DELAYED if slot.sent - slot.intended > LATE_NS else 0)
        return 0

    cdef int error(self, str status, str text, int64_t now) except -1:
        key = (status, text)
        if self.first_error is None:
            self.first_error = (text, now)
        if key not in self.errors and len(self.errors) >= ERROR_TEXTS_MAX:
            key = (status, f"further texts (of {ERROR_TEXTS_MAX} each is counted)")
        self.errors[key] = self.errors.get(key, 0) + 1
        return 0

    cdef int fail_all(self, Load load, str status, str text, int64_t now) except -1:
        cdef uint32_t i
        for i in range(self.slots_max if load.busy else 0):
            if self.slots[i].serial and self.slots[i].load == load.number:
                load.failed(&self.slots[i], now, status, text)
        return 0

    cdef Slot *slot_of(self, Load load, uint64_t id) noexcept:
        cdef uint32_t i = <uint32_t>(id & ((1 << SLOT_BITS) - 1))
        cdef Slot *found = NULL
        if id:
            if i < self.slots_max and self.slots[i].serial == id >> SLOT_BITS and self.slots[i].load == load.number:
                found = &self.slots[i]
            return found
        for i in range(self.slots_max):
            if self.slots[i].serial and self.slots[i].load == load.number and (found == NULL or self.slots[i].serial < found.serial):
                found = &self.slots[i]
        return found

    # ---- connections

    cdef int opening(self, Load load) except -1:
        """Begin to connect.  `number` is the one that epoll tells."""
        cdef epoll_event event
        made = socket.socket(self.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if self.family != socket.AF_UNIX:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = made.connect_ex(self.address)
        load.fd = made.detach()
        load.state, load.wants_out = CONNECTING, True
        self.connecting += 1
        event.events, event.data.u64 = EPOLLIN | EPOLLOUT, load.number
        if code not in (0, EINPROGRESS, EAGAIN):
            return self.lose(load, os.strerror(code))
        if epoll_ctl(self.epoll, EPOLL_CTL_ADD, load.fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    cdef int close_load(self, Load load) except -1:
        if load.fd >= 0:
            os.close(load.fd)  # epoll forgets it by that
            load.fd = -1
        if load.state == CONNECTING:
            self.connecting -= 1
        elif load.state == OPEN:
            self.opened -= 1
        load.state = CLOSED
        if load.listed:
            load.listed = False
            self.free_loads.remove(load)
        return 0

    cdef int lose(self, Load load, str text) except -1:
        """What is under way on it has failed; it is opened again a little later."""
        cdef int64_t now = monotonic()
        if load.state == CONNECTING:
            load.failures += 1
            text = f"cannot connect: {text}"
        self.close_load(load)
        self.lost_text = text
        load.on_lost(text)
        self.fail_all(load, "connection", text, now)
        load.retry_at = now + (RETRY_NS << min(load.failures, RETRIES_DOUBLED))
        self.broken.append(load)
        if self.opened == 0 and self.lost_since == 0:
            self.lost_since = now
        return 0

    cdef int reopen(self, int64_t now) except -1:
        cdef Load load
        if self.lost_since and now - self.lost_since > GONE_NS:
            raise Unavailable(f"the server cannot be reached for {GONE_NS / 1e9:g} s: {self.lost_text}")
        waiting, self.broken = self.broken, []
        for load in waiting:
            if load.retry_at <= now:
                self.opening(load)
            else:
                self.broken.append(load)
        return 0

    cdef int event(self, Load load, uint32_t events) except -1:
        if load.fd < 0:
            return 0
        try:
            if load.state == CONNECTING:
                with socket.socket(fileno=os.dup(load.fd)) as made:
                    code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code or not events & EPOLLOUT:
                    return self.lose(load, os.strerror(code) if code else "the server closed the connection")
                self.connecting -= 1
                self.opened += 1
                self.lost_since = 0
                load.state, load.failures = OPEN, 0
                load.want_out(False)
                load.on_open()
            if events & (EPOLLIN | EPOLLERR | EPOLLHUP):
                load.on_readable()
            if events & EPOLLOUT and load.state == OPEN:
                load.flush()
        except TisError as error:
            return self.lose(load, error.message)
        return self.refill(load)

    def close(self) -> None:
        """Close all connections; what is under way is not counted."""
        cdef Load load
        for load in self.loads:
            self.close_load(load)
        self.loads.clear()
        self.free_loads.clear()
        self.broken.clear()
