"""Default scheduler and dynamic batcher.  Pure: time comes in as numbers.  Layer 3 (engine).

Rules, as Triton's: batches add up the requests' own batch sizes and never split a request; they are filled in order of
priority, and within a level in order of arrival, requests past their timeout (DELAY) last; requests whose shapes or sets
of inputs differ do not mix.  A preferred size that is reached goes out at once, and a batch that the next request would take beyond the
largest one goes without it; otherwise whatever is queued goes when an
instance is idle and the oldest request has waited `delay_ns`.  Beyond Triton: timeouts fire by timer.
"""

from bisect import insort

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tisfast.engine.core cimport Link
from tisfast.engine.instances cimport Instances
from tisfast.engine.scheduler cimport refusal
from tisfast.engine.stats cimport FailureReason
from tisfast.wire.compose cimport tensors_of_input
from tisfast.wire.record cimport InferInput
from tisfast.wire.tensors cimport Tensor

from tisfast.engine.batching_strategy import Candidate
from tisfast.limits import DEFAULT_QUEUE_REQUESTS_MAX, SUBMIT_SLOTS
from tisfast.types import Status

cdef int UNAVAILABLE = Status.UNAVAILABLE
cdef int64_t TIMER_STEP_NS = 1_000_000  # expiry timers are no denser than this


def _by_level(PolicyQueue level) -> int:
    return level.level


cdef class Batcher(Scheduler):
    """settings: config.scheduler_settings.SchedulerSettings; strategy: batching_strategy.Strategy or None."""

    def __cinit__(self, settings, strategy=None):
        self.strategy = strategy
        self.dynamic = settings.dynamic and settings.max_batch_size > 0
        self.max_batch = max(1, settings.max_batch_size)
        self.requests_max = min(self.max_batch, SUBMIT_SLOTS) if self.dynamic else 1
        preferred = [size for size in settings.preferred_batch_sizes] or [self.max_batch]
        self.preferred = frozenset(preferred)
        self.preferred_max = max(preferred)
        self.preferred_min = min(preferred)
        self.delay_ns = settings.max_queue_delay_ns
        self.level_max = settings.priority_levels
        self.level_default = settings.default_priority_level
        self.policies = settings
        self.hold = settings.hold_requests
        self.size_max = _size_max(settings)
        self.limited = settings.priority_levels > 1 or any(
            policy.max_queue_size or policy.default_timeout_us for policy in _policies(settings))
        if self.dynamic:
            self.rejoin = Rejoin()
        self.known = {}
        self.levels = []
        self.alike = True
        if self.level_max <= 1:
            self.only = PolicyQueue(settings.policy_of(self.level_max), self.level_max)
            self.levels.append(self.only)

    # ---- requests in and out

    cdef bint add(self, InferRequest request, int64_t now_ns) except -1:
        cdef PolicyQueue level = self.only if self.only is not None else self._level(request.input.priority)
        if self.size >= self.size_max or not level.add(request, now_ns):
            message = f"[request id: {request.input.id or '<id_unknown>'}] Exceeds maximum queue size"  # tagged as 1.24
            request.refusal = refusal(UNAVAILABLE, message, FailureReason.REJECTED)
            self._emptied(level)
            return False
        if request.expires_ns and (self.soonest_ns == 0 or level.soonest_ns < self.soonest_ns):
            self.soonest_ns = level.soonest_ns
        if request.input.shape_key:
            self.alike = False
        self.size += 1
        self.inferences += request.input.batch
        if self.rejoin is not None:
            self.rejoin.arrived(now_ns)
        return True

    cdef int64_t patience_ns(self, InferRequest request) except -1:
        cdef PolicyQueue level = self.only if self.only is not None else self._level(request.input.priority)
        cdef int64_t found = level.patience_ns(request) if level.reject_late else 0
        self._emptied(level)
        return found

    cdef int finished(self, InferRequest request, Link link, bint failed) except -1:
        if self.rejoin is not None:
            self.rejoin.answered(request, link)
        return 0

    cdef PolicyQueue _level(self, uint64_t priority):
        """0 and what is beyond the levels mean the default one."""
        cdef PolicyQueue level
        if priority == 0 or priority > self.level_max:
            priority = self.level_default
        level = <PolicyQueue>self.known.get(priority)
        if level is None:
            level = self.known[priority] = PolicyQueue(self.policies.policy_of(priority), priority)
            insort(self.levels, level, key=_by_level)
        return level

    cdef int _emptied(self, PolicyQueue level) except -1:
        """Levels are made when they are used and forgotten when they are empty: there may be any number of them."""
        if level.size == 0 and self.only is None and level.level in self.known:
            del self.known[level.level]
            self.levels.remove(level)
        return 0

    cdef list put_back(self, list requests):
        cdef InferRequest request
        for request in reversed(requests):
            level = self.only if self.only is not None else self._level(request.input.priority)
            level.put_back(request)
            self.size += 1
            self.inferences += request.input.batch
        self._note_soonest()
        return []

    cdef int withdraw(self, InferRequest request) except -1:
        cdef PolicyQueue level = <PolicyQueue>request.level
        level.withdraw(request)
        self.size -= 1
        self.inferences -= request.input.batch
        return self._emptied(level)

    cdef int remove(self, InferRequest request) except -1:
        cdef PolicyQueue level = <PolicyQueue>request.level
        level.remove(request)
        self.size -= 1
        self.inferences -= request.input.batch
        return self._emptied(level)

    cdef list queued_requests(self):
        return [request for level in self.levels for request in (<PolicyQueue>level).live()]

    cdef list expire(self, int64_t now_ns):
        cdef PolicyQueue level
        cdef InferRequest request
        cdef list rejected = []
        for level in list(self.levels):
            level.expire(now_ns, rejected)
            self._emptied(level)
        self._note_soonest()
        for request in rejected:
            request.refusal = refusal(UNAVAILABLE, "Request timeout expired", FailureReason.REJECTED)
            self.size -= 1
            self.inferences -= request.input.batch
        return rejected

    cdef int _note_soonest(self) except -1:
        cdef PolicyQueue level
        self.soonest_ns = 0
        for level in self.levels:
            if level.soonest_ns and (self.soonest_ns == 0 or level.soonest_ns < self.soonest_ns):
                self.soonest_ns = level.soonest_ns
        return 0

    cdef int64_t next_event_ns(self, int64_t now_ns) noexcept:
        cdef int64_t soonest = self.soonest_ns
        if self.size == 0:  # nothing to wait for: the next request asks anew
            return 0
        if now_ns < soonest < now_ns + TIMER_STEP_NS:  # what is due stays due: a timer that asks is told so
            soonest = now_ns + TIMER_STEP_NS
        if self.batch_due_ns and (soonest == 0 or self.batch_due_ns < soonest):
            return self.batch_due_ns
        return soonest

    # ---- batches

    cdef list next_batch(self, Instances instances, int64_t now_ns):
        cdef bint idle = False
        cdef InferRequest request
        if self.hold:
            if self.size < self.hold:
                return None
            self.hold = 0
        self.batch_due_ns = 0  # where nobody could take a batch then, who becomes free asks again
        self.target = instances.least_busy(self.requests_max, not self.limited, now_ns, &idle)
        if self.target is None:
            return None
        if not self.dynamic:
            request = (<PolicyQueue>self.levels[0]).head()  # there is one: empty levels are not listed
            self._leave(request)
            return [request]
        if idle and self.inferences < self.preferred_min and not instances.decoupled:
            self.batch_due_ns = self.rejoin.wait_until(now_ns)
            if self.batch_due_ns:
                return None
        return self.choose(now_ns, idle)

    cdef list choose(self, int64_t now_ns, bint idle):
        cdef InferRequest request
        self.batch_due_ns = 0
        if self.inferences < self.preferred_min:
            if not idle or self.size == 0:
                return None
            if self.delay_ns and self.strategy is None and self.alike and self.only is not None and not self.only.late:
                request = self.only.head()  # the oldest
                if now_ns - request.queued_ns < self.delay_ns:
                    self.batch_due_ns = request.queued_ns + self.delay_ns
                    return None
        return self._form(now_ns, idle)

    cdef list _form(self, int64_t now_ns, bint idle):
        """Look at those that may go together, then decide how many of them go now."""
        cdef PolicyQueue level
        cdef InferRequest request
        cdef list batch = []
        cdef Forming form
        cdef Py_ssize_t count
        form.total = form.best_total = 0
        form.best = 0
        form.closed = False
        form.oldest_ns = form.now_ns = now_ns
        for level in self.levels:
            if self._gather(level.waiting, batch, &form) or (level.late and self._gather(level.late, batch, &form)):
                break
        count = self._ripe(len(batch), &form, now_ns, idle)
        if count == 0:
            return None
        del batch[count:]
        for request in batch:
            self._leave(request)
        return batch

    cdef bint _gather(self, queue, list batch, Forming *form) except -1:
        """Append the live requests of a queue that fit the batch; True when it is closed."""
        cdef InferRequest request, first = <InferRequest>batch[0] if batch else None
        for request in queue:
            if not request.queued:
                continue
            if first is None:
                first = request
            elif (form.total + request.input.batch > self.max_batch
                    or self._outgrows(request, form)
                    or (not self.alike and request.input.shape_key != first.input.shape_key)):
                form.closed = True
                break
            if self.strategy is not None and not self._joins(request, first):
                form.closed = True
                break
            batch.append(request)
            form.total += request.input.batch
            form.oldest_ns = min(form.oldest_ns, request.queued_ns)
            if form.total in self.preferred:
                form.best, form.best_total = len(batch), form.total
            if form.total >= self.max_batch or <uint32_t>len(batch) >= self.requests_max:
                form.closed = True
                break
        return form.closed

    cdef bint _outgrows(self, InferRequest request, Forming *form) noexcept:
        """With it the batch would pass by all preferred sizes, and there is time for a better one."""
        return (form.best == 0 and form.total + request.input.batch > self.preferred_max
                and form.now_ns - form.oldest_ns < self.delay_ns)

    cdef bint _joins(self, InferRequest request, InferRequest first) except -1:
        if request.facts is None:
            request.facts = _candidate(request.input)
        if request is first:
            self.strategy.start(request.facts)
            return True
        return self.strategy.takes(request.facts)

    cdef Py_ssize_t _ripe(self, Py_ssize_t count, Forming *form, int64_t now_ns, bint idle) except -1:
        """How many of `count` requests go now."""
        cdef bint overdue = self.delay_ns > 0 and now_ns - form.oldest_ns >= self.delay_ns
        if form.best and not overdue:
            return form.best if idle or form.closed or form.best_total >= self.preferred_max else 0
        if form.closed or form.total >= self.preferred_max:
            return count
        if not idle:
            return 0
        if self.delay_ns > 0 and not overdue:
            self.batch_due_ns = form.oldest_ns + self.delay_ns
            return 0
        return count

    cdef int _leave(self, InferRequest request) except -1:
        cdef PolicyQueue level = <PolicyQueue>request.level
        level.pop(request)
        self.size -= 1
        self.inferences -= request.input.batch
        return self._emptied(level)


cdef _candidate(InferInput input):
    cdef Tensor tensor
    cdef dict shapes = {}
    cdef uint64_t nbytes = 0
    for tensor in tensors_of_input(input):
        shapes[tensor.name] = tensor.shape
        nbytes += tensor.nbytes
    return Candidate(input.batch, nbytes, shapes, input.priority)


def _policies(settings) -> list:
    """Those that some level has."""
    own = dict(settings.priority_policies)
    return [*own.values(), *([settings.queue_policy] if len(own) < max(1, settings.priority_levels) else [])]


def _size_max(settings) -> int:
    """Requests that may wait at all: what the levels with a bound may hold, and the server's own bound for the others."""
    own = dict(settings.priority_policies)
    sizes = [policy.max_queue_size for policy in own.values()]
    others = max(1, settings.priority_levels) - len(own)
    if others:
        sizes.append(settings.queue_policy.max_queue_size * others)
    return min(sum(sizes) + (0 if all(sizes) else DEFAULT_QUEUE_REQUESTS_MAX), 1 << 62)
