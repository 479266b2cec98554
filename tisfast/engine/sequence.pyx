"""The sequence batcher.  Pure: time comes in as numbers.  Layer 3 (engine).

A sequence has one slot of one instance from its first request to its last; while none is free it waits in the backlog,
first come first served.  It ends with a request that has END, with a cancelled one, when it has been idle for too long,
or with its instance: then its next request is told so, until the client starts it anew.
"""

import logging
from collections import OrderedDict, deque

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tisfast.engine.instances cimport Instances
from tisfast.engine.scheduler cimport refusal
from tisfast.engine.sequence_slots cimport DirectSlots, OldestSlots, Place
from tisfast.wire.signature cimport BYTES

from tisfast.limits import (
    DEFAULT_QUEUE_REQUESTS_MAX as _QUEUE_MAX,
    LOST_SEQUENCES_MAX as _LOST_MAX,
    OUTSTANDING_REQUESTS_MAX as _OUTSTANDING_MAX,
)
from tisfast.types import BY_CODE, Status

cdef Py_ssize_t QUEUE_MAX = _QUEUE_MAX
cdef Py_ssize_t LOST_MAX = _LOST_MAX
cdef Py_ssize_t OUTSTANDING_MAX = _OUTSTANDING_MAX
cdef int CANCELLED = Status.CANCELLED
cdef int INVALID_ARG = Status.INVALID_ARG
cdef int UNAVAILABLE = Status.UNAVAILABLE
cdef int START = 1
cdef int END = 2
cdef int64_t TIMER_STEP_NS = 1_000_000    # timers are no denser than this
cdef int64_t WARNING_NS = 1_000_000_000   # nor are warnings of sequences that begin before their end
cdef int64_t AT_ONCE_NS = 1               # for soonest_ns: `expire` has something to hand back
cdef object log = logging.getLogger("tisfast.models")


cdef class SequenceScheduler(Scheduler):
    """settings: config.scheduler_settings.SchedulerSettings with `sequence`."""

    def __cinit__(self, settings, bint decoupled):
        sequence = settings.sequence
        control = sequence.correlation_control
        self.settings = settings
        self.decoupled = decoupled
        self.in_order = True
        self.oldest = sequence.oldest
        self.iterative = sequence.iterative
        self.padded = not sequence.oldest and settings.max_batch_size > 1
        self.idle_ns = sequence.idle_ns
        self.wanted_dtype = control.dtype if control is not None else 0
        self.wanted_name = control.name if control is not None else ""
        self.live = OrderedDict()
        self.backlog = deque()
        self.lost = OrderedDict()
        self.all_slots = []
        self.condemned = []
        self.next_id = 1
        self.hold = settings.hold_requests > 0 or settings.hold_backlog > 0

    # ---- requests in

    cdef bint add(self, InferRequest request, int64_t now_ns) except -1:
        cdef Sequence sequence
        if not self._check(request):
            return False
        if self.size >= QUEUE_MAX:
            return self._refuse(
                request, UNAVAILABLE, f"{_who(request)}Exceeds maximum queue size", FailureReason.REJECTED)
        sequence = self.live.get(request.input.correlation)
        if sequence is None:
            sequence = self._begin(request)
        elif request.input.sequence_flags & START:
            self._warn(request, now_ns)
        sequence.idle_since_ns = now_ns
        self._append(sequence, request, now_ns)
        return True

    cdef bint _check(self, InferRequest request) except -1:
        """Whether it is a request of a sequence that is known, or of a new one."""
        cdef object id = request.input.correlation
        if self.wanted_dtype and (type(id) is str) != (self.wanted_dtype == BYTES):
            given, wanted = "BYTES" if type(id) is str else "UINT64", BY_CODE[self.wanted_dtype].wire
            return self._refuse(
                request, INVALID_ARG, f"{_who(request)}sequence batching control '{self.wanted_name}' data-type is "
                f"'{given}', but model '{_model(request)}' expects '{wanted}'", FailureReason.MISTAKEN)
        if request.input.batch > 1:
            return self._refuse(
                request, INVALID_ARG, f"inference request to model '{_model(request)}' must specify batch-size 1 due to "
                "requirements of sequence batcher", FailureReason.MISTAKEN)
        if not id:
            return self._name(request)
        if request.input.sequence_flags & START or id in self.live:
            return True
        if id in self.lost:
            return self._refuse(
                request, UNAVAILABLE, _lost_text(id, _model(request), self.lost[id]), FailureReason.BACKEND)
        return self._refuse(
            request, INVALID_ARG, f"inference request for sequence {id} to model '{_model(request)}' must specify the "
            "START flag on the first request of the sequence", FailureReason.MISTAKEN)

    cdef bint _name(self, InferRequest request) except -1:
        """A request without an id: of an iterative model it is a sequence of its own."""
        if not self.iterative:
            return self._refuse(
                request, INVALID_ARG, f"inference request to model '{_model(request)}' must specify a non-zero or "
                "non-empty correlation ID", FailureReason.MISTAKEN)
        while self.next_id in self.live:
            self.next_id += 1
        request.input.set_sequence(self.next_id, START)
        self.next_id += 1
        return True

    cdef bint _refuse(self, InferRequest request, int status, str message, FailureReason reason) except -1:
        request.refusal = refusal(status, message, reason)
        return False

    def _warn(self, InferRequest request, int64_t now_ns):
        """A client that does so all the time is not to fill the log."""
        self.conflicts += 1
        if self.warned_ns and now_ns - self.warned_ns < WARNING_NS:
            return
        log.warning(
            "sequence %s for model '%s' has a conflict. The previous sequence did not end before this sequence start. "
            "Previous sequence will be terminated early. (%d since the last such line)",
            request.input.correlation, _model(request), self.conflicts)
        self.conflicts, self.warned_ns = 0, now_ns

    cdef Sequence _begin(self, InferRequest request):
        cdef Sequence sequence = Sequence(request.input.correlation)
        self.lost.pop(sequence.id, None)
        self.live[sequence.id] = sequence
        return sequence

    cdef int _append(self, Sequence sequence, InferRequest request, int64_t now_ns) except -1:
        """The request is the sequence's last so far."""
        request.place = sequence
        request.queued = True
        self.size += 1
        sequence.waiting.append(request)
        if request.input.sequence_flags & END:
            self._close(sequence)
        else:
            self.live.move_to_end(sequence.id)
            self._wake_at(now_ns + self.idle_ns)
        if sequence.place == Place.SEATED:
            return self._advance(sequence)
        if sequence.place == Place.NEW:
            sequence.place = Place.WAITS
            self.backlog.append(sequence)
        self._note_timeout(sequence, request)
        return self._fill()

    cdef int _note_timeout(self, Sequence sequence, InferRequest request) except -1:
        """Note the timeout of a request whose sequence has no slot."""
        cdef int64_t due_ns
        if request.input.timeout_us == 0:
            return 0
        due_ns = request.queued_ns + <int64_t>min(request.input.timeout_us, <uint64_t>(1 << 50)) * 1000
        if sequence.expires_ns == 0 or due_ns < sequence.expires_ns:
            sequence.expires_ns = due_ns
        if self.backlog_soonest_ns == 0 or due_ns < self.backlog_soonest_ns:
            self.backlog_soonest_ns = due_ns
        self._wake_at(due_ns)
        return 0

    cdef void _wake_at(self, int64_t due_ns) noexcept:
        if self.soonest_ns == 0 or due_ns < self.soonest_ns:
            self.soonest_ns = due_ns

    # ---- slots

    cdef int _fill(self) except -1:
        """Slots that are free go to the backlog: the lowest of all instances first, which spreads sequences out."""
        cdef InstanceSlots slots, best
        cdef Sequence sequence
        cdef int64_t slot, lowest
        while self.backlog:
            best, lowest = None, -1
            for slots in self.all_slots:
                slot = slots.lowest()
                if slots.link.up and slot >= 0 and (best is None or slot < lowest):
                    best, lowest = slots, slot
            if best is None:
                return 0
            sequence = self.backlog.popleft()
            best.sit(sequence, lowest)
            self._advance(sequence)
        return 0

    cdef int _spread(self, Instances instances, int64_t now_ns) except -1:
        """New sequences that wait behind an execution go to an instance that can execute them now."""
        cdef InstanceSlots slots, target
        for slots in self.all_slots:
            if slots.fresh and slots.link.batches and slots.ready():
                target = self._better(slots, instances, now_ns)
                if target is not None:
                    self._move_fresh(slots, target)
        return 0

    cdef InstanceSlots _better(self, InstanceSlots slots, Instances instances, int64_t now_ns):
        cdef InstanceSlots target
        cdef bint late = instances.is_late(slots.link, now_ns)
        for target in self.all_slots:
            if (target.link.up and target.link.batches == 0 and target.lowest() >= 0 and (late or not target.ready())
                    and instances.may_run(target.link)):
                return target
        return None

    cdef int _move_fresh(self, InstanceSlots slots, InstanceSlots target) except -1:
        """The first one, and as many of the others as leave the instances even: a sequence stays where it begins."""
        cdef Sequence sequence
        cdef bint moved = False
        for sequence in list(slots.fresh):
            if sequence.out:
                continue
            if target.lowest() < 0 or moved and slots.taken() <= target.taken() + 1:
                break
            moved = True
            slots.unseat(sequence)
            target.sit(sequence, <uint32_t>target.lowest())
            self._advance(sequence)
        return self._fill() if moved else 0

    cdef int _advance(self, Sequence sequence) except -1:
        """A sequence with a slot has other requests than before, or its slot has become quiet."""
        cdef InstanceSlots slots = sequence.slots
        slots.changed(sequence)
        if sequence.closed and not sequence.waiting and slots.quiet(sequence.slot) and not (self.iterative and sequence.out):
            slots.leave(sequence)
            self._fill()
        return 0

    cdef int _close(self, Sequence sequence) except -1:
        """It takes no further request; the next one of this id must start another."""
        if not sequence.closed:
            sequence.closed = True
            del self.live[sequence.id]
        return 0

    # ---- requests out

    cdef list next_batch(self, Instances instances, int64_t now_ns):
        cdef InstanceSlots slots
        cdef InferRequest request
        cdef Sequence sequence
        cdef list batch
        cdef bint idle = False
        if self.hold and not self._held_long_enough():
            return None
        self.due_ns = 0
        if self.backlog:
            self._fill()  # an instance may have come up
        if len(self.all_slots) > 1:
            self._spread(instances, now_ns)
        for slots in self.all_slots:
            if not self._may_take(slots, &idle) or not instances.may_run(slots.link):
                continue
            batch = slots.form(now_ns, idle)
            if batch is None:
                if slots.due_ns and (self.due_ns == 0 or slots.due_ns < self.due_ns):
                    self.due_ns = slots.due_ns
                continue
            self.size -= len(batch)
            self.target = slots.link
            slots.fresh_ahead = False
            for request in batch:
                sequence = <Sequence>request.place
                sequence.out += 1
                slots.fresh_ahead |= not sequence.begun and sequence.out == 1
                request.queued = False
                request.slot = sequence.slot
            if self.decoupled:
                slots.executing.append([(<InferRequest>request).slot for request in batch])
            if not self.oldest:  # whose last request this was, has no more use for its slot
                for request in batch:
                    self._advance(<Sequence>request.place)
            return batch
        return None

    cdef bint _held_long_enough(self) except -1:
        """Whether as many requests with a slot, and behind them in the backlog, wait as a test wants to see together."""
        cdef Py_ssize_t behind = sum([len((<Sequence>sequence).waiting) for sequence in self.backlog])
        if self.size - behind < self.settings.hold_requests or behind < self.settings.hold_backlog:
            return False
        self.hold = False
        return True

    cdef bint _may_take(self, InstanceSlots slots, bint *idle) except -1:
        """Whether the instance of these slots may be given a batch now; one more may wait behind a running one."""
        cdef Link link = slots.link
        if not slots.ready() or not (link.up or slots.leaving):
            return False
        idle[0] = link.batches == 0
        if self.decoupled and link.inflight + slots.requests_max() > OUTSTANDING_MAX:
            return False
        if idle[0] and not link.crowded:
            return True
        return link.batches < 2 and link.room() >= slots.requests_max()

    cdef int finished(self, InferRequest request, Link link, bint failed) except -1:
        cdef Sequence sequence = <Sequence>request.place
        request.place = None
        sequence.out -= 1
        self._began(sequence)
        if sequence.place == Place.DOUBTFUL:
            return self._lose(sequence)
        if not sequence.slots.alive:
            return 0
        if not self.decoupled:
            sequence.slots.done(request.slot)
        if failed and request.cancelled:
            self._cut(sequence, 0)  # it was not executed, so nothing that comes after it makes sense
        elif self.iterative:
            self._close(sequence)   # it was not rescheduled
        if sequence.place == Place.SEATED:
            self._advance(sequence)
        return 0

    cdef int executed(self, Link link) except -1:
        """`execute` of the oldest batch of a decoupled model's instance has returned."""
        cdef InstanceSlots slots
        cdef Sequence sequence
        for slots in self.all_slots:
            if slots.link is link and slots.executing:
                for slot in slots.executing.popleft():
                    slots.done(slot)
                    sequence = slots.seats[slot]
                    if sequence is not None:
                        self._advance(sequence)
        return 0

    cdef int reschedule(self, InferRequest request) except -1:
        """An iterative request that was executed and is not done: it is the next of its sequence."""
        cdef Sequence sequence = <Sequence>request.place
        sequence.out -= 1
        self._began(sequence)
        request.input.set_sequence(request.input.correlation, 0)
        request.queued = True
        self.size += 1
        sequence.waiting.appendleft(request)
        if not sequence.slots.alive:  # the last words of a worker that has died
            return self._lose(sequence)
        if not self.decoupled:
            sequence.slots.done(request.slot)
        return self._advance(sequence)

    cdef int _began(self, Sequence sequence) except -1:
        if not sequence.begun:
            sequence.begun = True
            sequence.slots.fresh.pop(sequence, None)
        return 0

    # ---- requests that are not to go, or not yet

    cdef int withdraw(self, InferRequest request) except -1:
        cdef Sequence sequence = <Sequence>request.place
        cdef Py_ssize_t at = -1
        for i, waiting in enumerate(sequence.waiting):
            if waiting is request:
                at = i
                del sequence.waiting[at]
                break
        else:
            at = 0
            sequence.slots.drop(request, sequence.slot)
        self.size -= 1
        request.queued = False
        request.place = None
        if request.cancelled:
            self._cut(sequence, at)
        elif not sequence.begun and not sequence.out and not sequence.waiting:
            self._close(sequence)  # nothing of it has happened
        return self._settle(sequence)

    cdef int _settle(self, Sequence sequence) except -1:
        """Some of its requests have been taken out."""
        if sequence.place == Place.SEATED:
            return self._advance(sequence)
        if sequence.place == Place.WAITS and not sequence.waiting:
            sequence.place = Place.LEFT
            self.backlog.remove(sequence)
            self._close(sequence)
        return 0

    cdef int _cut(self, Sequence sequence, Py_ssize_t start) except -1:
        """A cancelled request ends its sequence: what came after it is cancelled, too."""
        self._close(sequence)
        while len(sequence.waiting) > start:
            self._condemn(
                sequence.waiting.pop(), CANCELLED, "Request cancelled: an earlier request of its sequence was",
                FailureReason.CANCELED)
        return 0

    cdef int _condemn(self, InferRequest request, int status, str message, FailureReason reason) except -1:
        """A queued request that is in no sequence any more is handed back as soon as the runtime looks."""
        request.refusal = refusal(status, message, reason)
        request.queued = False
        request.place = None
        self.size -= 1
        self.condemned.append(request)
        self.soonest_ns = AT_ONCE_NS
        return 0

    cdef Py_ssize_t open_sequences(self):
        return len(self.live)

    cdef list queued_requests(self):
        cdef InstanceSlots slots
        cdef Sequence sequence
        cdef list found = []
        for slots in self.all_slots:
            found += slots.issued()
            for sequence in slots.seats:
                if sequence is not None:
                    found += sequence.waiting
        for sequence in self.backlog:
            found += sequence.waiting
        return found

    # ---- time

    cdef list expire(self, int64_t now_ns):
        cdef list expired
        self._end_idle(now_ns)
        if self.backlog_soonest_ns and now_ns >= self.backlog_soonest_ns:
            self._expire_backlog(now_ns)
        self.soonest_ns = self.backlog_soonest_ns
        if self.live:
            self._wake_at((<Sequence>next(iter(self.live.values()))).idle_since_ns + self.idle_ns)
        expired, self.condemned = self.condemned, []
        return expired

    cdef int _end_idle(self, int64_t now_ns) except -1:
        """A sequence that waits, or is being answered, is not idle."""
        cdef Sequence sequence
        while self.live:
            sequence = <Sequence>next(iter(self.live.values()))
            if now_ns - sequence.idle_since_ns < self.idle_ns:
                break
            if sequence.waiting or sequence.out or sequence.place != Place.SEATED or not sequence.slots.quiet(sequence.slot):
                sequence.idle_since_ns = now_ns
                self.live.move_to_end(sequence.id)
                continue
            self._close(sequence)
            self._advance(sequence)
        return 0

    cdef int _expire_backlog(self, int64_t now_ns) except -1:
        """The first timeout of a sequence that has no slot yet ends all of it."""
        cdef Sequence sequence
        self.backlog_soonest_ns = 0
        for sequence in list(self.backlog):
            if sequence.expires_ns == 0:
                continue
            if sequence.expires_ns > now_ns:
                if self.backlog_soonest_ns == 0 or sequence.expires_ns < self.backlog_soonest_ns:
                    self.backlog_soonest_ns = sequence.expires_ns
                continue
            while sequence.waiting:
                self._condemn(
                    sequence.waiting.popleft(), UNAVAILABLE, "timeout of the corresponding sequence has been expired",
                    FailureReason.REJECTED)
            self._settle(sequence)
        return 0

    cdef int64_t next_event_ns(self, int64_t now_ns) noexcept:
        cdef int64_t soonest = self.soonest_ns
        if now_ns < soonest < now_ns + TIMER_STEP_NS:
            soonest = now_ns + TIMER_STEP_NS
        if self.due_ns and (soonest == 0 or self.due_ns < soonest):
            return self.due_ns
        return soonest

    # ---- instances

    cdef int link_added(self, Link link) except -1:
        self.all_slots.append(OldestSlots(link, self.settings) if self.oldest else DirectSlots(link, self.settings))
        return self._fill()

    cdef InstanceSlots _slots_of(self, Link link):
        cdef InstanceSlots slots
        for slots in self.all_slots:
            if slots.link is link:
                return slots
        raise KeyError(link.instance)

    cdef int link_leaves(self, Link link) except -1:
        cdef InstanceSlots slots = self._slots_of(link)
        cdef Sequence sequence
        cdef list again = []
        slots.leaving = True
        for sequence in list(slots.fresh):
            if sequence.out == 0:
                slots.unseat(sequence)
                again.append(sequence)
        return self._return(again)

    cdef list link_removed(self, Link link):
        cdef InstanceSlots slots = self._slots_of(link)
        cdef InferRequest request
        cdef Sequence sequence
        cdef list lost, again = []
        self.all_slots.remove(slots)
        slots.alive = False
        for request in slots.issued():
            sequence = <Sequence>request.place
            slots.drop(request, sequence.slot)
            request.queued = True
            sequence.waiting.appendleft(request)
        for sequence in slots.seats:
            if sequence is None:
                continue
            if sequence.begun:
                self._lose(sequence)
            elif sequence.out:
                sequence.place = Place.DOUBTFUL
            else:
                again.append(sequence)
        self._return(again)
        lost, self.condemned = self.condemned, []
        return lost

    cdef int _return(self, list sequences) except -1:
        """Sequences of which nothing was executed wait for another instance, before all others."""
        cdef Sequence sequence
        cdef InferRequest request
        for sequence in reversed(sequences):
            sequence.place = Place.WAITS
            self.backlog.appendleft(sequence)
        self._fill()
        for sequence in sequences:
            if sequence.place == Place.WAITS:
                for request in sequence.waiting:
                    self._note_timeout(sequence, request)
        return 0

    cdef bint may_move(self, Link link, Instances instances, int64_t now_ns) except -1:
        cdef InstanceSlots slots = self._slots_of(link)
        return slots.fresh_ahead and self._better(slots, instances, now_ns) is not None

    cdef list put_back(self, list requests):
        cdef InferRequest request
        cdef Sequence sequence
        cdef list refused, again = []
        for request in reversed(requests):
            sequence = <Sequence>request.place
            sequence.out -= 1
            self.size += 1
            if sequence.slots.alive and self.decoupled and request.closes_batch:
                sequence.slots.executing.pop()
            if sequence.slots.alive and (sequence.place != Place.LEFT or sequence.begun or sequence.out):
                if sequence.place == Place.LEFT:
                    self._come_back(sequence)
                sequence.slots.put_back(sequence, request)
                continue
            request.queued = True
            sequence.waiting.appendleft(request)
            if sequence.begun:
                self._lose(sequence)
            elif sequence.out:
                sequence.place = Place.DOUBTFUL
            elif sequence not in again:
                again.append(sequence)
        again.reverse()
        self._return(again)
        refused, self.condemned = self.condemned, []
        return refused

    cdef int _come_back(self, Sequence sequence) except -1:
        """A sequence that was over sits in its slot again, for its state is there, and who has the slot now did not begin."""
        cdef InstanceSlots slots = sequence.slots
        cdef Sequence other = <Sequence>slots.seats[sequence.slot]
        if other is not None:
            slots.unseat(other)
            other.place = Place.WAITS
            self.backlog.appendleft(other)
            for request in other.waiting:
                self._note_timeout(other, <InferRequest>request)
        return slots.sit(sequence, sequence.slot)

    cdef int _lose(self, Sequence sequence) except -1:
        """Its instance died with what it knew of it."""
        cdef str instance = sequence.slots.link.instance
        sequence.place = Place.LOST
        if not sequence.closed:
            self._close(sequence)
            self.lost[sequence.id] = instance
            if len(self.lost) > LOST_MAX:
                self.lost.popitem(last=False)
        while sequence.waiting:
            request = <InferRequest>sequence.waiting.popleft()
            self._condemn(request, UNAVAILABLE, _lost_text(sequence.id, _model(request), instance), FailureReason.BACKEND)
        return 0


cdef str _model(InferRequest request):
    return request.input.model.name


cdef str _who(InferRequest request):
    return f"[request id: {request.input.id or '<id_unknown>'}] "


cdef str _lost_text(id, str model, str instance):
    return (
        f"sequence {id} of model '{model}' is lost: instance {instance}, which knew what came before, has ended; send the "
        "sequence again from its first request, with the START flag")
