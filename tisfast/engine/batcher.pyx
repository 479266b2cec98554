"""Default scheduler and dynamic batcher (rows 15.18 to 15.25, 8.*).  Pure: time comes in as numbers.  Layer 3 (engine).

Rules, as Triton's: batches add up the requests' own batch sizes and never split a request; requests whose variable
shapes differ do not mix; a preferred size that is reached goes out at once, otherwise whatever is queued goes when an
instance is idle and the oldest request has waited `delay_ns`.  Beyond Triton: timeouts fire by timer.
"""

from collections import deque

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tisfast.engine.core cimport Link
from tisfast.engine.instances cimport Instances
from tisfast.engine.scheduler cimport refusal
from tisfast.engine.stats cimport FailureReason

from tisfast.limits import DEFAULT_QUEUE_REQUESTS_MAX, SUBMIT_SLOTS
from tisfast.types import Status

cdef int UNAVAILABLE = Status.UNAVAILABLE

cdef int64_t TIMER_STEP_NS = 1_000_000  # expiry timers are no denser than this: a scan costs O(queue)


cdef class Batcher(Scheduler):
    """settings: config.scheduler.SchedulerSettings."""

    def __cinit__(self, settings):
        self.dynamic = settings.dynamic and settings.max_batch_size > 0
        self.max_batch = max(1, settings.max_batch_size)
        self.requests_max = min(self.max_batch, SUBMIT_SLOTS) if self.dynamic else 1
        preferred = [size for size in settings.preferred_batch_sizes] or [self.max_batch]
        self.preferred = frozenset(preferred)
        self.preferred_max = max(preferred)
        self.preferred_min = min(preferred)
        self.delay_ns = settings.max_queue_delay_ns
        self.timeout_ns = settings.default_timeout_us * 1000
        self.may_override = settings.allow_timeout_override
        self.reject_late = settings.timeout_action == "REJECT"
        self.limited = bool(settings.max_queue_size or self.timeout_ns)
        self.queue_max = settings.max_queue_size or DEFAULT_QUEUE_REQUESTS_MAX
        self.waiting = deque()
        self.late = deque()
        if self.dynamic:
            self.rejoin = Rejoin()

    cdef bint add(self, InferRequest request, int64_t now_ns) except -1:
        cdef int64_t timeout_ns = self.timeout_ns
        if self.size >= self.queue_max:
            message = f"[request id: {request.input.id or '<id_unknown>'}] Exceeds maximum queue size"  # tagged as 1.24
            request.refusal = refusal(UNAVAILABLE, message, FailureReason.REJECTED)
            return False
        # Row 8.02: an override can only shorten, so it does nothing where no default is set.
        if self.may_override and request.input.timeout_us:
            timeout_ns = min(timeout_ns, <int64_t>min(request.input.timeout_us, <uint64_t>(1 << 50)) * 1000)
        request.expires_ns = now_ns + timeout_ns if timeout_ns else 0
        if request.expires_ns and (self.soonest_ns == 0 or request.expires_ns < self.soonest_ns):
            self.soonest_ns = request.expires_ns
        request.queued = True
        self.waiting.append(request)
        self.size += 1
        self.inferences += request.input.batch
        if self.rejoin is not None:
            self.rejoin.arrived(now_ns)
        return True

    cdef int finished(self, InferRequest request, Link link, bint failed) except -1:
        if self.rejoin is not None:
            self.rejoin.answered(request, link)
        return 0

    cdef list put_back(self, list requests):
        cdef InferRequest request
        for request in reversed(requests):
            request.queued, request.timed_out = True, False
            self.waiting.appendleft(request)
            self.size += 1
            self.inferences += request.input.batch
            if request.expires_ns and (self.soonest_ns == 0 or request.expires_ns < self.soonest_ns):
                self.soonest_ns = request.expires_ns
        return []

    cdef list queued_requests(self):
        return [request for queue in (self.waiting, self.late) for request in queue if (<InferRequest>request).queued]

    cdef int withdraw(self, InferRequest request) except -1:
        request.queued = False
        self.size -= 1
        if not request.timed_out:
            self.inferences -= request.input.batch
        self.gone += 1
        if self.gone > self.size + 64:  # amortised: the dead never outnumber the living for long
            self.waiting = deque([r for r in self.waiting if (<InferRequest>r).queued])
            self.late = deque([r for r in self.late if (<InferRequest>r).queued])
            self.gone = 0
        return 0

    cdef list expire(self, int64_t now_ns):
        cdef InferRequest request
        cdef list expired = []
        if self.soonest_ns == 0 or now_ns < self.soonest_ns:
            return expired
        keep = deque()
        self.soonest_ns = 0
        for request in self.waiting:
            if not request.queued:
                self.gone -= 1
            elif request.expires_ns == 0 or request.expires_ns > now_ns:
                if request.expires_ns and (self.soonest_ns == 0 or request.expires_ns < self.soonest_ns):
                    self.soonest_ns = request.expires_ns
                keep.append(request)
            else:
                self.inferences -= request.input.batch
                request.timed_out = True
                if self.reject_late:
                    request.queued = False
                    self.size -= 1
                    request.refusal = refusal(UNAVAILABLE, "Request timeout expired", FailureReason.REJECTED)
                    expired.append(request)
                else:
                    self.late.append(request)
        self.waiting = keep
        return expired

    cdef InferRequest head(self, queue):
        """First live request of a queue, left in place, or None."""
        cdef InferRequest request
        while queue:
            request = <InferRequest>queue[0]
            if request.queued:
                return request
            queue.popleft()
            self.gone -= 1
        return None

    cdef list next_batch(self, Instances instances, int64_t now_ns):
        cdef bint idle = False
        self.target = instances.least_busy(self.requests_max, not self.limited, self.dynamic, &idle)
        if self.target is None:
            self.batch_due_ns = 0  # nobody could take it then: who becomes free asks again
            return None
        if idle and self.dynamic and not instances.decoupled and self.inferences < self.preferred_min:
            self.batch_due_ns = self.rejoin.wait_until(now_ns)
            if self.batch_due_ns:
                return None
        return self.choose(now_ns, idle)

    cdef list choose(self, int64_t now_ns, bint idle):
        cdef InferRequest request
        cdef list batch
        self.batch_due_ns = 0
        queue = self.waiting
        request = self.head(queue)
        if request is None:
            queue = self.late
            request = self.head(queue)
            if request is None:
                return None
        if not self.dynamic:
            queue.popleft()
            self._leave(request)
            return [request]
        if (queue is self.waiting and self.inferences < self.preferred_min
                and (not idle or now_ns - request.queued_ns < self.delay_ns)):
            self.batch_due_ns = request.queued_ns + self.delay_ns if idle else 0
            return None
        return self._form(queue, now_ns, idle)

    cdef list _form(self, queue, int64_t now_ns, bint idle):
        """Collect from the head of one queue, then decide how much of it goes now."""
        cdef InferRequest request, first = None
        cdef list batch = []
        cdef uint32_t total = 0
        cdef Py_ssize_t best = 0, n
        cdef bint closed = False, overdue
        cdef uint32_t best_total = 0
        while True:
            request = self.head(queue)
            if request is None:
                break
            if first is None:
                first = request
            elif (total + request.input.batch > self.max_batch
                  or request.input.shape_key != first.input.shape_key):
                closed = True
                break
            queue.popleft()
            batch.append(request)
            total += request.input.batch
            if total in self.preferred:
                best, best_total = len(batch), total
            if total >= self.max_batch or <uint32_t>len(batch) >= self.requests_max:
                closed = True
                break
        overdue = self.delay_ns > 0 and now_ns - first.queued_ns >= self.delay_ns
        n = len(batch)
        if best and not overdue:
            n = best if idle or closed or best_total >= self.preferred_max else 0
        elif closed or total >= self.preferred_max:
            pass
        elif not idle:
            n = 0
        elif self.delay_ns > 0 and not overdue and queue is self.waiting:
            n = 0
            self.batch_due_ns = first.queued_ns + self.delay_ns
        queue.extendleft(reversed(batch[n:]))
        del batch[n:]
        for request in batch:
            self._leave(request)
        return batch if n else None

    cdef int _leave(self, InferRequest request) except -1:
        request.queued = False
        self.size -= 1
        if not request.timed_out:
            self.inferences -= request.input.batch
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
