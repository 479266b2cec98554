"""Sequences, and the slots of an instance that they have, by both strategies.  Layer 3 (engine).

Pure: time comes in as numbers.  The scheduler (sequence.pyx) decides which sequence has which slot; InstanceSlots decides what goes out next.

Direct: a batch holds the next request of each slot, slot by slot, and the link fills the gaps with null requests, so that
a sequence is always at the same place of the batch.  Oldest: one request of each slot at a time is *issued* to a dynamic
batcher of the instance's own.
"""

from collections import deque
from heapq import heapify, heappop, heappush

from libc.stdint cimport int64_t, uint32_t

from tisfast.config.scheduler_settings import SchedulerSettings
from tisfast.limits import SUBMIT_SLOTS as _SUBMIT_SLOTS

cdef uint32_t SUBMIT_SLOTS = _SUBMIT_SLOTS


cdef class Sequence:
    """id: as the client gave it, int or str."""

    def __cinit__(self, id):
        self.id = id
        self.waiting = deque()


cdef class InstanceSlots:
    """link: its instance; settings: config.scheduler_settings.SchedulerSettings with `sequence`.  Subclasses are the strategies.

    Cython has no abstract methods: they override all that raise here.
    """

    def __cinit__(self, Link link, settings):
        self.link = link
        self.size = settings.sequence.slots
        self.seats = []
        self.free = []
        self.executing = deque()
        self.fresh = {}
        self.alive = True

    cdef Py_ssize_t taken(self) noexcept:
        return len(self.seats) - len(self.free)

    cdef int64_t lowest(self) noexcept:
        if self.free:
            return <int64_t>self.free[0]
        return len(self.seats) if <uint32_t>len(self.seats) < self.size else -1

    cdef int sit(self, Sequence sequence, uint32_t slot) except -1:
        if slot == <uint32_t>len(self.seats):
            self.seats.append(sequence)
        else:
            if slot == <uint32_t>self.free[0]:
                heappop(self.free)
            else:
                self.free.remove(slot)
                heapify(self.free)
            self.seats[slot] = sequence
        sequence.slots, sequence.slot, sequence.place = self, slot, Place.SEATED
        sequence.counted = False  # it may come from an instance that died
        if not sequence.begun:
            self.fresh[sequence] = None
        return 0

    cdef int leave(self, Sequence sequence) except -1:
        self.seats[sequence.slot] = None
        heappush(self.free, sequence.slot)
        self.fresh.pop(sequence, None)
        sequence.place = Place.LEFT
        return 0

    cdef int unseat(self, Sequence sequence) except -1:
        return self.leave(sequence)

    cdef int put_back(self, Sequence sequence, InferRequest request) except -1:
        request.queued = True
        sequence.waiting.appendleft(request)
        return self.changed(sequence)

    cdef int changed(self, Sequence sequence) except -1:
        raise NotImplementedError(f"{type(self).__name__}.changed")

    cdef bint quiet(self, uint32_t slot):
        return True

    cdef int done(self, uint32_t slot) except -1:
        return 0

    cdef int drop(self, InferRequest request, uint32_t slot) except -1:
        return 0

    cdef list issued(self):
        return []

    cdef bint ready(self) noexcept:
        return False

    cdef uint32_t requests_max(self) noexcept:
        return 1

    cdef list form(self, int64_t now_ns, bint idle):
        raise NotImplementedError(f"{type(self).__name__}.form")


cdef class DirectSlots(InstanceSlots):
    """Slots are places in the batch."""

    def __cinit__(self, Link link, settings):
        self.size = min(self.size, SUBMIT_SLOTS)
        self.delay_ns = settings.sequence.delay_ns
        self.utilization_min = settings.sequence.minimum_slot_utilization

    cdef int leave(self, Sequence sequence) except -1:
        InstanceSlots.leave(self, sequence)
        return self.changed(sequence)

    cdef int changed(self, Sequence sequence) except -1:
        cdef bint counts = len(sequence.waiting) > 0 and sequence.place == Place.SEATED
        self.with_work += counts - sequence.counted
        sequence.counted = counts
        return 0

    cdef bint ready(self) noexcept:
        return self.with_work > 0

    cdef uint32_t requests_max(self) noexcept:
        return <uint32_t>len(self.seats)

    cdef list form(self, int64_t now_ns, bint idle):
        cdef Sequence sequence
        cdef InferRequest request
        cdef list batch = []
        cdef bytes shape = self._oldest_shape() if self.mixed else None
        self.due_ns = 0
        if not idle and <uint32_t>self.with_work < self.size:
            return None  # who is being answered now, or comes meanwhile, may be in the next batch, too
        if self.delay_ns and self.utilization_min > 0 and <float>self.with_work / self.size < self.utilization_min:
            self.due_ns = self._oldest().queued_ns + self.delay_ns
            if now_ns < self.due_ns:
                return None
            self.due_ns = 0
        for sequence in self.seats:
            if sequence is None or not sequence.waiting:
                continue
            request = <InferRequest>sequence.waiting[0]
            if shape is None:
                shape = request.input.shape_key
            elif request.input.shape_key != shape:
                self.mixed = True
                continue  # has a null request in its place, and its turn with the next batch
            sequence.waiting.popleft()
            self.changed(sequence)
            batch.append(request)
        return batch

    cdef InferRequest _oldest(self):
        """The request that has waited longest, of those that may go next; there is one."""
        cdef Sequence sequence
        cdef InferRequest request, oldest = None
        for sequence in self.seats:
            if sequence is not None and sequence.waiting:
                request = <InferRequest>sequence.waiting[0]
                if oldest is None or request.queued_ns < oldest.queued_ns:
                    oldest = request
        return oldest

    cdef bytes _oldest_shape(self):
        """Once shapes have differed, the request that has waited longest decides: the first slot would, for ever."""
        return self._oldest().input.shape_key if self.with_work else None


cdef class OldestSlots(InstanceSlots):
    """Slots are candidates: their oldest requests are batched, in the order in which they could go."""

    def __cinit__(self, Link link, settings):
        sequence = settings.sequence
        self.batcher = Batcher(SchedulerSettings(
            max_batch_size=settings.max_batch_size, dynamic=True, preferred_batch_sizes=sequence.preferred_batch_sizes,
            max_queue_delay_ns=sequence.delay_ns))
        self.flying = []

    cdef int sit(self, Sequence sequence, uint32_t slot) except -1:
        if slot == <uint32_t>len(self.flying):
            self.flying.append(None)
        return InstanceSlots.sit(self, sequence, slot)

    cdef int changed(self, Sequence sequence) except -1:
        cdef InferRequest request
        if sequence.waiting and self.flying[sequence.slot] is None:
            request = self.flying[sequence.slot] = sequence.waiting.popleft()
            self.batcher.add(request, 0)
        return 0

    cdef int unseat(self, Sequence sequence) except -1:
        cdef InferRequest request = self.flying[sequence.slot]
        if request is not None:
            self.batcher.remove(request)
            self.flying[sequence.slot] = None
            request.queued = True
            sequence.waiting.appendleft(request)
        return self.leave(sequence)

    cdef int put_back(self, Sequence sequence, InferRequest request) except -1:
        self.flying[sequence.slot] = request
        self.batcher.put_back([request])
        return 0

    cdef bint quiet(self, uint32_t slot):
        return self.flying[slot] is None

    cdef int done(self, uint32_t slot) except -1:
        self.flying[slot] = None
        return 0

    cdef int drop(self, InferRequest request, uint32_t slot) except -1:
        self.batcher.withdraw(request)
        self.flying[slot] = None
        return 0

    cdef list issued(self):
        return self.batcher.queued_requests()

    cdef bint ready(self) noexcept:
        return self.batcher.size > 0

    cdef uint32_t requests_max(self) noexcept:
        return self.batcher.requests_max

    cdef list form(self, int64_t now_ns, bint idle):
        cdef list batch = self.batcher.choose(now_ns, idle)
        self.due_ns = self.batcher.batch_due_ns
        return batch
