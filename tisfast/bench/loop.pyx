"""Requests go when they are due, answers are counted; see loop.pxd.  Layer 5 (bench).

Closed loop: so many requests are under way, and the next one goes when an answer has come.  Open loop: each has its intended
time, which never moves.  A request that finds no connection with a place waits in the schedule, and its waiting is latency.

GIL: let go in epoll_wait, where the threads that ask for statistics and metrics run.  Python's handlers of signals run when
`run` has returned, which is after 0.1 s at most.  One class fills most of this file: a second module would cost 100 KB.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.bench.histogram cimport tf_histogram_record
from tisfast.bench.kernel cimport CLOCK_MONOTONIC, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, \
    MSG_DONTWAIT, TFD_CLOEXEC, TFD_NONBLOCK, epoll_create1, epoll_event, epoll_wait, monotonic, read, recv, \
    ring_at, timerfd_create, watch

import os
import socket

from tisfast import limits, tuning
from tisfast.errors import TisError, Unavailable
from tisfast.bench.results import DELAYED, FAILED, RECORD, STAMP

import numpy as np

cdef extern from *:
    """
    struct bench_record {
        int64_t intended, sent, first, last;
        uint64_t sequence_id;
        uint32_t sent_bytes, received_bytes, step, responses;
        uint16_t status, flags;
        uint32_t serial;
    };
    struct bench_stamp {
        int64_t ns;
        uint32_t serial, unused;
    };
    """
    struct bench_record:
        int64_t intended, sent, first, last
        uint64_t sequence_id
        uint32_t sent_bytes, received_bytes, step, responses
        uint16_t status, flags
        uint32_t serial
    struct bench_stamp:
        int64_t ns
        uint32_t serial

cdef enum:
    EVENTS = 256                    # of one epoll_wait
    TURN = 64                       # requests that go between two looks at what has come
    CONNECTING_MAX = 64             # connections of an open loop that are being opened at one time
    UINT32_TOP = 0xFFFFFFFF
cdef uint64_t TIMER = <uint64_t>-1
cdef int64_t SECOND = 1_000_000_000
cdef int64_t LATE_NS = 1_000_000
cdef int64_t GONE_NS = int(limits.BENCH_GONE_SECONDS * 1e9)
cdef int64_t CONNECT_NS = int(limits.BENCH_CONNECT_SECONDS_MAX * 1e9)
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


cdef class Marks:
    """places: of the id, and of the words for begin and end; id_bytes: of the id's stand-in; text: it is JSON."""

    def __init__(self, places, Py_ssize_t id_bytes, bint text):
        self.id_at, self.begins_at, self.ends_at = places
        self.id_bytes, self.text = id_bytes, text

    cdef bytes written(self, bytes rendered, Slot *slot):
        """A copy with this request's values."""
        cdef bytes made = PyBytes_FromStringAndSize(PyBytes_AS_STRING(rendered), PyBytes_GET_SIZE(rendered))
        cdef char *at = PyBytes_AS_STRING(made)  # nobody else has it yet
        cdef uint64_t id = slot.sequence_id
        cdef Py_ssize_t i
        if self.text:
            for i in range(self.id_at + self.id_bytes - 1, self.id_at - 1, -1):
                at[i] = <char>(48 + id % 10) if id or i == self.id_at + self.id_bytes - 1 else 32
                id //= 10
            memcpy(at + self.begins_at, b"true " if slot.begins else b"false", 5)
            memcpy(at + self.ends_at, b"true " if slot.ends else b"false", 5)
        else:
            for i in range(self.id_at, self.id_at + self.id_bytes):
                at[i] = <char>(id & 127 | (128 if i < self.id_at + self.id_bytes - 1 else 0))
                id >>= 7
            at[self.begins_at], at[self.ends_at] = slot.begins, slot.ends
        return made


cdef class Load:
    """See loop.pxd.  Cython has no abstract methods: what raises here is overridden."""

    def __cinit__(self, Loop loop, *_, **__):
        self.loop, self.fd, self.places = loop, -1, 1

    cdef int on_open(self) except -1:
        return 0

    cdef int on_bytes(self, ssize_t n) except -1:
        raise NotImplementedError("on_bytes")

    cdef int begin(self, Slot *slot) except -1:
        raise NotImplementedError("begin")

    cdef int flush(self) except -1:
        raise NotImplementedError("flush")

    cdef int on_lost(self, str text) except -1:
        raise NotImplementedError("on_lost")

    cdef int on_readable(self) except -1:
        cdef Loop loop = self.loop
        cdef ssize_t n
        if self.channel is not None:
            return self.unseal() if self.channel.receive(self.fd, loop.scratch) else self.on_bytes(0)
        n = recv(self.fd, loop.room, <size_t>loop.room_bytes, MSG_DONTWAIT)
        if n < 0:
            if errno == EAGAIN or errno == EINTR:
                return 0
            raise Unavailable(f"the connection was lost: {os.strerror(errno)}")
        return self.on_bytes(n)

    cdef int unseal(self) except -1:
        cdef ssize_t n = 1
        channel = self.channel
        while n > 0 and self.channel is channel and self.state == OPEN:
            n = channel.read_into(self.loop.scratch)
            if n:
                self.on_bytes(max(n, 0))
        return 0

    cdef int send_sealed(self) except -1:
        cdef bint sent = self.channel.send(self.fd)
        self.want_out(not sent)
        return sent

    cdef int want_out(self, bint wanted) except -1:
        if wanted == self.wants_out or self.fd < 0:
            return 0
        self.wants_out = wanted
        return watch(self.loop.epoll, self.fd, EPOLL_CTL_MOD, <uint32_t>(EPOLLIN | (EPOLLOUT if wanted else 0)), self.number)

    cdef int done(self, Slot *slot, int64_t now, int status) except -1:
        self.busy -= 1
        return self.loop.ended(self, slot, now, status, True)

    cdef int failed(self, Slot *slot, int64_t now, str status, str text) except -1:
        self.busy -= 1
        if status != "connection":
            self.loop.lost_since = 0  # the server has said why
        self.loop.error(slot, status, text, now)
        return self.loop.ended(self, slot, now, int(status) if status.isdigit() else 0, False)

    cdef int renew(self) except -1:
        self.loop.close_load(self)
        return self.loop.opening(self)


cdef class Loop:
    """address: of socket.connect; family: of the socket; slots: requests under way at most; connections_max: that it opens.

    make(loop): a further connection, a Load.  templates: what its `begin` sends, one for each step of the input data.
    player: of sequences: says which template a request is and where in its sequence (sequences.Player).
    channel: gives each connection its encryption (encryption.Channel).
    counting: makes what counts the tokens of a stretch of time (tokens.Tokens).  mixture: templates are of several models, and
    are sent in its order (mixture.Mixture).
    """

    def __init__(self, address, int family, make, list templates, *, uint32_t slots, int connections_max, player=None,
                 channel=None, counting=None, mixture=None):
        cdef uint32_t i
        self.address, self.family, self.make, self.templates = address, family, make, templates
        if not 0 < slots <= 1 << SLOT_BITS:
            raise ValueError(f"{slots} requests under way; 1 to {1 << SLOT_BITS} can be")
        self.slots_max, self.connections_max, self.player = slots, connections_max, player
        self.channel = channel
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
        self.counting, self.mixture = counting, mixture
        self.steps = <uint32_t>len(templates)
        if mixture is not None:
            self.order = np.ascontiguousarray(mixture.order, np.uint32)
            self.models = np.ascontiguousarray(mixture.models, np.uint16)
            if len(self.models) != len(templates) or len(self.order) == 0 or self.order.max() >= len(templates):
                raise ValueError("the order and the models are not those of the templates")
            self.step_at, self.steps = <uint32_t *><size_t>self.order.ctypes.data, <uint32_t>len(self.order)
            self.model_at = <uint16_t *><size_t>self.models.ctypes.data
        self.swap()
        self.slice = Histogram()
        self.left = -1
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        self.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.epoll < 0 or self.timer < 0:
            raise OSError(errno, os.strerror(errno))
        watch(self.epoll, self.timer, EPOLL_CTL_ADD, EPOLLIN, TIMER)

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

    def keep_joining(self, int start, int end, int step, int period) -> None:
        """From `start` requests on, `step` more begin when all before them have had `period` responses; `end` in all."""
        self.keep_in_flight(end)
        self.period, self.joining, self.launched, self.launched_max = <uint32_t>period, step, start, end
        self.reached, self.left = 0, start

    def follow(self, times) -> None:
        """Open loop: requests go at these times (ns of CLOCK_MONOTONIC, rising), behind those of which it knows already."""
        known = self.known[self.due:self.due_end] if self.due < self.due_end else np.empty(0, np.int64)
        self.known = np.ascontiguousarray(np.concatenate([known, times]), np.int64)
        self.schedule = <int64_t *><size_t>self.known.ctypes.data
        self.concurrency = 0
        self.due, self.due_end = 0, len(self.known)

    def allow(self, int64_t count) -> None:
        """So many further requests begin at most; -1: any number.  Behind them open sequences end."""
        if self.cutting:
            self.cutting = self.finishing = False
            self.player.resume()
        self.left = count
        if count == 0:
            self.begin_cutting()

    def finish(self) -> None:
        """From now on `run` also waits for the last requests of sequences, which are in no figure."""
        self.finishing = True

    cdef int begin_cutting(self) except -1:
        if self.player is not None and not self.cutting:
            self.cutting = True
            self.idle_open = self.player.cut()
        return 0

    def end(self) -> int:
        """Nothing further is due: what was due before still goes.  Gives the number of requests that wait."""
        cdef int64_t now = monotonic()
        cdef Py_ssize_t end = self.due
        while end < self.due_end and self.schedule[end] <= now and (self.left < 0 or end - self.due < self.left):
            end += 1
        self.due_end = end
        self.left = end - self.due
        if self.left == 0:
            self.begin_cutting()
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
    def lost(self) -> bool:
        """Whether the last connection was lost, and nothing was answered since: `run` raises if that goes on."""
        return self.lost_since != 0

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
        cdef uint64_t before = self.losses
        while self.opened < len(self.loads) and monotonic() < until and self.losses == before:
            self.run(min(until, monotonic() + SECOND // 20))
        return self.opened == len(self.loads)

    # ---- what was counted

    def swap(self) -> Tally:
        """What was counted since the last call."""
        cdef Tally told = self.tally
        self.tally = Tally()
        if self.counting is not None:
            self.tally.tokens = self.counting()
        if self.mixture is not None:
            self.tally.parts = [Tally() for _ in self.mixture.names]
        if told is not None:
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

    def keep_records(self, Py_ssize_t count, Py_ssize_t stamps=0) -> None:
        """Keep a record of each request, `count` of them at most; see `swap_records`.  stamps: of responses, at most."""
        self.records = np.zeros(count, RECORD)
        self.record_at = <uint8_t *><size_t>self.records.ctypes.data
        self.records_count, self.records_max, self.records_missed = 0, count, 0
        if stamps:
            self.stamps = np.zeros(stamps, STAMP)
            self.stamp_at = <uint8_t *><size_t>self.stamps.ctypes.data
        self.stamps_count, self.stamps_max, self.stamps_missed = 0, stamps, 0

    def swap_records(self) -> tuple:
        """The records since the last call, in the order in which the requests ended, and how many more found no room.

        Behind them the same of the responses of decoupled models; None, 0 where they are not kept.
        """
        told = self.records[:self.records_count], self.records_missed
        stamps = (self.stamps[:self.stamps_count], self.stamps_missed) if self.stamps_max else (None, 0)
        self.keep_records(self.records_max, self.stamps_max)  # pages that no record touches take no memory
        return *told, *stamps

    # ---- the loop

    def run(self, int64_t until) -> bool:
        """Send and receive until `until`.  False: it ended before, because nothing is under way and nothing can go any more.

        Raises Unavailable when the server cannot be reached for limits.BENCH_GONE_SECONDS.
        """
        cdef epoll_event events[EVENTS]
        cdef int64_t now = monotonic(), awake, rang
        cdef int n, i, timeout, code
        while now < until:
            if self.broken or self.lost_since:
                self.reopen(now)
            if self.connecting and now > self.connect_by:
                self.give_up(now)
            self.spread()
            if self.left == 0 and self.free_count + <uint32_t>self.uncounted == self.slots_max:
                if not (self.finishing and (self.idle_open or self.uncounted)):
                    return False
            timeout = self.wait_ms(now, until)
            if timeout:
                self.arm()
            now = monotonic()
            with nogil:
                n = epoll_wait(self.epoll, events, EVENTS, timeout)
                code = errno
                awake = monotonic()
            self.tally.idle_ns += awake - now
            self.tally.gil_ns += monotonic() - awake  # this process's other threads held it
            if n < 0:
                if code == EINTR:
                    return True
                raise OSError(code, os.strerror(code))
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
        if self.broken or self.lost_since:
            until = min(until, now + RETRY_NS)
        if self.connecting:
            until = min(until, self.connect_by + 1_000_000)
        return <int>max((until - now + 999_999) // 1_000_000, 0)

    cdef int arm(self) except -1:
        """The timer rings when the next request is due; for one that waits for a place it need not."""
        cdef int64_t next
        if self.due >= self.due_end or self.left == 0 or not (self.free_loads or self.opened + self.connecting < self.connections_max):
            return 0
        next = self.schedule[self.due]
        if next == self.timer_at:
            return 0
        ring_at(self.timer, next)
        self.timer_at = next
        return 0

    cdef bint may_begin(self, int64_t now) noexcept:
        if self.cutting:
            return self.idle_open > 0 and self.free_count > 0
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
        slot.counted = not self.cutting
        if slot.counted and not self.concurrency:
            slot.intended = self.schedule[self.due]
            self.due += 1
        if slot.counted and self.left > 0:
            self.left -= 1
        self.serial += 1
        slot.serial = self.serial
        slot.sequence_id = 0
        if self.player is None:
            slot.step = self.step if self.step_at == NULL else self.step_at[self.step]
            self.step = (self.step + 1) % self.steps
        else:
            slot.step, slot.sequence_id, slot.begins, slot.ends = self.player.take()
            if not slot.counted:
                self.uncounted += 1
                self.idle_open -= 1
            elif self.left == 0:
                self.begin_cutting()
        slot.sent = now
        slot.first = 0
        slot.sent_bytes = slot.received_bytes = 0
        slot.responses = 0
        if slot.counted:
            self.begun(self.tally, slot, now)
            if self.model_at != NULL:
                self.begun(self.part(slot), slot, now)
        return slot

    cdef Tally part(self, Slot *slot):
        return <Tally>self.tally.parts[self.model_at[slot.step]]

    cdef int begun(self, Tally tally, Slot *slot, int64_t now) except -1:
        tally.requests += 1
        if not self.concurrency:
            tf_histogram_record(&tally.lateness.counts, max(now - slot.intended, 0))
            if now - slot.intended > LATE_NS:
                tally.delayed += 1
        return 0

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
        cdef int turn = 0, wanted
        while turn < TURN and self.may_begin(now):
            turn += 1
            if self.free_loads:
                load = <Load>self.free_loads.pop()
                load.listed = False
                self.refill(load)
            else:
                if not self.broken:
                    wanted = min(self.due_now(now, CONNECTING_MAX), self.connections_max - len(self.loads))
                    while self.connecting < wanted and not self.broken:
                        self._grow()
                break
        return 0

    cdef int due_now(self, int64_t now, int most) noexcept:
        """Requests that could begin if they had a place; counted up to `most`."""
        cdef int count = 0
        if self.concurrency:
            return min(most, self.concurrency - <int>(self.slots_max - self.free_count))
        while count < most and self.due + count < self.due_end and self.schedule[self.due + count] <= now:
            count += 1
        return count

    cdef int on_period(self) except -1:
        """A request has had `period` responses, or has ended before."""
        cdef int more
        self.reached += 1
        if self.reached == self.launched:
            more = min(self.joining, self.launched_max - self.launched)
            self.launched += more
            self.left += more
        return 0

    cdef int ended(self, Load load, Slot *slot, int64_t now, int status, bint good) except -1:
        if good:
            self.lost_since = 0
        if not slot.counted:
            self.uncounted -= 1
        else:
            self.counted(self.tally, slot, now, good)
            if self.model_at != NULL:
                self.counted(self.part(slot), slot, now, good)
            if good:
                tf_histogram_record(&self.slice.counts, now - slot.intended)
                self.slice_responses += 1
        if self.player is not None:
            self.player.answered(slot.sequence_id, good)
            if self.cutting:
                self.idle_open = self.player.idle
        if self.period and slot.responses < self.period:
            self.on_period()
        if self.record_at != NULL and slot.counted:
            self.note(load, slot, now, status, good)
        slot.serial = 0
        self.free_slots[self.free_count] = slot.index
        self.free_count += 1
        return 0

    cdef int stamp(self, Slot *slot, int64_t now) except -1:
        cdef bench_stamp *stamp
        if not self.stamps_max or not slot.counted:
            return 0
        if self.stamps_count == self.stamps_max:
            self.stamps_missed += 1
            return 0
        stamp = <bench_stamp *>self.stamp_at + self.stamps_count
        self.stamps_count += 1
        stamp.ns, stamp.serial = now, <uint32_t>slot.serial
        return 0

    cdef int counted(self, Tally tally, Slot *slot, int64_t now, bint good) except -1:
        tally.sent_bytes += slot.sent_bytes
        tally.received_bytes += slot.received_bytes
        if not good:
            tally.failed += 1
            return 0
        tally.completed += 1
        tally.responses += slot.responses
        tf_histogram_record(&tally.response.counts, now - slot.intended)
        tf_histogram_record(&tally.service.counts, now - slot.sent)
        tf_histogram_record(&tally.first_byte.counts, (slot.first or now) - slot.sent)
        tally.receive_ns += now - (slot.first or now)
        if slot.sequence_id and slot.ends:
            tally.sequences += 1
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
        record.status, record.serial = <uint16_t>status, <uint32_t>slot.serial
        record.flags = (0 if good else FLAG_FAILED) | (FLAG_DELAYED if slot.sent - slot.intended > LATE_NS else 0)
        return 0

    cdef int error(self, Slot *slot, str status, str text, int64_t now) except -1:
        if self.model_at != NULL:
            text = self.mixture.told(self.model_at[slot.step], text)
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
        made = socket.socket(self.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if self.family != socket.AF_UNIX:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = made.connect_ex(self.address)
        load.fd = made.detach()
        load.state, load.wants_out, load.linked = CONNECTING, True, False
        load.channel = self.channel() if self.channel is not None else None
        load.retry_at = monotonic() + CONNECT_NS
        if self.connecting == 0:
            self.connect_by = load.retry_at
        self.connecting += 1
        if code not in (0, EINPROGRESS, EAGAIN):
            return self.lose(load, os.strerror(code))
        return watch(self.epoll, load.fd, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT, load.number)

    cdef int give_up(self, int64_t now) except -1:
        """Connections that nobody answers are lost at their time."""
        cdef Load load
        self.connect_by = now + CONNECT_NS
        for load in self.loads:
            if load.state == CONNECTING and load.retry_at <= now:
                self.lose(load, f"no answer within {CONNECT_NS / 1e9:g} s")
            elif load.state == CONNECTING:
                self.connect_by = min(self.connect_by, load.retry_at)
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
        elif load.state == OPEN and now - load.opened_at > GONE_NS:
            self.lost_since = 0  # the server was there meanwhile: some close what nobody uses
        self.close_load(load)
        self.lost_text = text
        self.losses += 1
        load.on_lost(text)
        self.fail_all(load, "connection", text, now)
        load.retry_at = now + (RETRY_NS << min(load.failures, RETRIES_DOUBLED))
        self.broken.append(load)
        if self.opened == 0 and self.lost_since == 0:
            self.lost_since = now
        return 0

    cdef int reopen(self, int64_t now) except -1:
        cdef Load load
        if self.lost_since and self.opened == 0 and now - self.lost_since > GONE_NS:
            raise Unavailable(f"the server cannot be reached for {GONE_NS / 1e9:g} s: {self.lost_text}")
        waiting, self.broken = self.broken, []
        for load in waiting:
            if load.retry_at <= now:
                self.opening(load)
            else:
                self.broken.append(load)
        return 0

    cdef int event(self, Load load, uint32_t events) except -1:
        cdef int64_t began
        if load.fd < 0:
            return 0
        try:
            if load.state == CONNECTING:
                if not load.linked:
                    with socket.socket(fileno=os.dup(load.fd)) as made:
                        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if code or not events & EPOLLOUT:
                        return self.lose(load, os.strerror(code) if code else "the server closed the connection")
                    load.linked = True
                if load.channel is not None and not load.channel.shake(load.fd, self.scratch):
                    load.send_sealed()
                    return 0
                self.connecting -= 1
                self.opened += 1
                load.state, load.failures, load.opened_at = OPEN, 0, monotonic()
                load.want_out(False)
                load.on_open()
                if load.channel is not None:
                    load.unseal()  # what came with the end of the handshake
                    events = 0
            if events & (EPOLLIN | EPOLLERR | EPOLLHUP):
                load.on_readable()
            if events & EPOLLOUT and load.state == OPEN:
                began = monotonic()
                load.flush()
                self.tally.send_ns += monotonic() - began
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
