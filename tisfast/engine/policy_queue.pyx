"""One priority level's queue: its bound, its timeouts, and what happens to those that wait too long.

Where all requests have the same timeout they expire in order of arrival, and looking at the first is enough.  Where
clients may shorten it (allow_timeout_override) the whole queue is looked through, and rests in between for so long that
this costs a hundredth of the time at most.  Layer 3 (engine).
"""

from collections import deque

from libc.stdint cimport int64_t, uint64_t

from tisfast.limits import DEFAULT_QUEUE_REQUESTS_MAX

cdef int64_t REST_NS_PER_REQUEST = 2_000  # a look at one takes some 20 ns
cdef Py_ssize_t GONE_MAX = 64
cdef uint64_t TIMEOUT_US_TOP = 1 << 50


cdef class PolicyQueue:
    """See policy_queue.pxd."""

    def __cinit__(self, policy, uint64_t level=0):
        self.level = level
        self.reject_late = policy.timeout_action == "REJECT"
        self.may_override = policy.allow_timeout_override
        self.in_order = not self.may_override
        self.timeout_ns = policy.default_timeout_us * 1000
        self.size_max = policy.max_queue_size or DEFAULT_QUEUE_REQUESTS_MAX
        self.waiting = deque()
        self.late = deque()

    cdef bint add(self, InferRequest request, int64_t now_ns) except -1:
        cdef int64_t timeout_ns = self.patience_ns(request)
        if self.size >= self.size_max:
            return False
        if timeout_ns:
            request.expires_ns = now_ns + timeout_ns
            self._expect(request.expires_ns)
        request.queued = True
        request.level = self
        self.waiting.append(request)
        self.size += 1
        return True

    cdef int64_t patience_ns(self, InferRequest request) noexcept:
        # an override can only shorten, so it does nothing where no default is set.
        if self.timeout_ns and self.may_override and request.input.timeout_us:
            return min(self.timeout_ns, <int64_t>min(request.input.timeout_us, TIMEOUT_US_TOP) * 1000)
        return self.timeout_ns

    cdef int put_back(self, InferRequest request) except -1:
        request.queued, request.timed_out = True, False
        request.level = self
        if self.waiting and (<InferRequest>self.waiting[0]).queued_ns < request.queued_ns:
            self.in_order = False  # two instances died, the one with the older requests first
        self.waiting.appendleft(request)
        self.size += 1
        if request.expires_ns:
            self._expect(request.expires_ns)
        return 0

    cdef void _expect(self, int64_t expires_ns) noexcept:
        expires_ns = max(expires_ns, self.rest_until_ns)
        if self.soonest_ns == 0 or expires_ns < self.soonest_ns:
            self.soonest_ns = expires_ns

    cdef int withdraw(self, InferRequest request) except -1:
        request.queued = False
        self.size -= 1
        self.gone += 1
        if self.gone > self.size + GONE_MAX:  # amortised: the dead never outnumber the living for long
            self.waiting = deque([r for r in self.waiting if (<InferRequest>r).queued])
            self.late = deque([r for r in self.late if (<InferRequest>r).queued])
            self.gone = 0
        return 0

    cdef int remove(self, InferRequest request) except -1:
        (self.late if request.timed_out else self.waiting).remove(request)
        request.queued = False
        self.size -= 1
        return 0

    cdef InferRequest head(self):
        cdef InferRequest request
        for queue in (self.waiting, self.late):
            while queue:
                request = <InferRequest>queue[0]
                if request.queued:
                    return request
                queue.popleft()
                self.gone -= 1
        return None

    cdef int pop(self, InferRequest request) except -1:
        queue = self.late if request.timed_out else self.waiting
        while (<InferRequest>queue.popleft()) is not request:
            self.gone -= 1
        request.queued = False
        self.size -= 1
        return 0

    cdef list live(self):
        return [request for queue in (self.waiting, self.late) for request in queue if (<InferRequest>request).queued]

    cdef int expire(self, int64_t now_ns, list rejected) except -1:
        if self.soonest_ns == 0 or now_ns < self.soonest_ns:
            return 0
        self.soonest_ns = 0
        return self._expire_first(now_ns, rejected) if self.in_order else self._expire_any(now_ns, rejected)

    cdef int _expire_first(self, int64_t now_ns, list rejected) except -1:
        cdef InferRequest request
        while self.waiting:
            request = <InferRequest>self.waiting[0]
            if not request.queued:
                self.gone -= 1
            elif request.expires_ns > now_ns:
                self.soonest_ns = request.expires_ns
                break
            else:
                self._is_late(request, rejected)
            self.waiting.popleft()
        return 0

    cdef int _expire_any(self, int64_t now_ns, list rejected) except -1:
        cdef InferRequest request
        keep = deque()
        self.rest_until_ns = now_ns + REST_NS_PER_REQUEST * len(self.waiting)
        for request in self.waiting:
            if not request.queued:
                self.gone -= 1
            elif request.expires_ns > now_ns:
                self._expect(request.expires_ns)
                keep.append(request)
            else:
                self._is_late(request, rejected)
        self.waiting = keep
        return 0

    cdef int _is_late(self, InferRequest request, list rejected) except -1:
        if self.reject_late:
            request.queued = False
            self.size -= 1
            rejected.append(request)
        else:
            request.timed_out = True
            self.late.append(request)
        return 0
