"""Base of the schedulers.  Layer 3 (engine)."""


cdef RequestRefusal refusal(int status, str message, FailureReason reason):
    cdef RequestRefusal made = RequestRefusal.__new__(RequestRefusal)
    made.status, made.message, made.reason = status, message, reason
    return made


cdef class Scheduler:
    """See scheduler.pxd.  Cython has no abstract methods: subclasses override all that raise here."""

    cdef bint add(self, InferRequest request, int64_t now_ns) except -1:
        raise NotImplementedError(f"{type(self).__name__}.add")

    cdef int64_t patience_ns(self, InferRequest request) except -1:
        return 0

    cdef list put_back(self, list requests):
        raise NotImplementedError(f"{type(self).__name__}.put_back")

    cdef bint may_move(self, Link link, Instances instances, int64_t now_ns) except -1:
        return True

    cdef int withdraw(self, InferRequest request) except -1:
        raise NotImplementedError(f"{type(self).__name__}.withdraw")

    cdef list expire(self, int64_t now_ns):
        return []

    cdef list next_batch(self, Instances instances, int64_t now_ns):
        raise NotImplementedError(f"{type(self).__name__}.next_batch")

    cdef int64_t next_event_ns(self, int64_t now_ns) noexcept:
        return 0

    cdef Py_ssize_t open_sequences(self):
        return 0

    cdef list queued_requests(self):
        raise NotImplementedError(f"{type(self).__name__}.queued_requests")

    cdef int link_added(self, Link link) except -1:
        return 0

    cdef int link_leaves(self, Link link) except -1:
        return 0

    cdef list link_removed(self, Link link):
        return []

    cdef int finished(self, InferRequest request, Link link, bint failed) except -1:
        return 0

    cdef int executed(self, Link link) except -1:
        return 0

    cdef int reschedule(self, InferRequest request) except -1:
        raise NotImplementedError(f"{type(self).__name__}.reschedule")
