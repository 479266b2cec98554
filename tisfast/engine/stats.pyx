"""Counters of one model version.  Layer 3 (engine)."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tisfast.limits import RESPONSE_STATS_MAX as _RESPONSE_STATS_MAX

cdef uint32_t RESPONSE_STATS_MAX = _RESPONSE_STATS_MAX


cdef inline dict _tally(Tally t):
    return {"count": t.count, "ns": t.ns}


cdef inline void _add(Tally *t, int64_t ns) noexcept:
    t.count += 1
    t.ns += <uint64_t>ns if ns > 0 else 0


cdef class Statistics:
    """Monotonic within one life of a model version; a reload starts anew."""

    def __cinit__(self):
        self.batch_stats = {}
        self.responses = []

    cdef void count_success(self, uint32_t batch, Times *t, int64_t queued_ns, int64_t now_ns) noexcept:
        _add(&self.success, now_ns - queued_ns)
        _add(&self.queue, t.taken_ns - queued_ns)
        _add(&self.compute_input, t.infer_start_ns - t.taken_ns)
        _add(&self.compute_infer, t.infer_end_ns - t.infer_start_ns)
        _add(&self.compute_output, t.done_ns - t.infer_end_ns)
        self.inference_count += batch

    cdef void count_hit(self, int64_t queued_ns, int64_t lookup_ns, int64_t now_ns) noexcept:
        _add(&self.success, now_ns - queued_ns)
        _add(&self.queue, now_ns - queued_ns - lookup_ns)
        _add(&self.cache_hit, lookup_ns)

    cdef void count_miss(self, int64_t ns) noexcept:
        _add(&self.cache_miss, ns)

    cdef void count_failure(self, FailureReason reason, int64_t ns) noexcept:
        _add(&self.fail, ns)
        if reason == REJECTED:
            self.rejected += 1
        elif reason == CANCELED:
            self.canceled += 1
        elif reason == BACKEND:
            self.backend_failed += 1
        else:
            self.other_failed += 1

    cdef int count_execution(self, uint32_t batch, Times *t) except -1:
        cdef BatchTally tally = <BatchTally>self.batch_stats.get(batch)
        if tally is None:
            tally = self.batch_stats[batch] = BatchTally()
        _add(&tally.compute_input, t.infer_start_ns - t.taken_ns)
        _add(&tally.compute_infer, t.infer_end_ns - t.infer_start_ns)
        _add(&tally.compute_output, t.done_ns - t.infer_end_ns)
        self.execution_count += 1
        return 0

    cdef int count_response(self, uint32_t index, ResponseKind kind, Times *t, int64_t since_ns) except -1:
        cdef ResponseTally tally
        if index >= RESPONSE_STATS_MAX:
            return 0
        if index == len(self.responses):
            self.responses.append(ResponseTally())
        tally = <ResponseTally>self.responses[index]
        if kind == RESPONSE_GOOD:
            _add(&tally.success, t.done_ns - since_ns)
        elif kind == RESPONSE_FAILED:
            _add(&tally.fail, t.done_ns - since_ns)
        elif kind == RESPONSE_EMPTY:
            _add(&tally.empty_response, t.done_ns - since_ns)
            return 0  # nothing was computed
        else:
            _add(&tally.cancel, t.done_ns - since_ns)
            return 0
        _add(&tally.compute_infer, t.infer_end_ns - since_ns)
        _add(&tally.compute_output, t.done_ns - t.infer_end_ns)
        return 0

    def response_stats(self) -> dict:
        """The `response_stats` object: {"0": {...}, ...}, by position of the response in its stream."""
        return {str(index): tally.as_dict() for index, tally in enumerate(self.responses)}

    def inference_stats(self) -> dict:
        """The `inference_stats` object for this version."""
        return {
            "success": _tally(self.success),
            "fail": _tally(self.fail),
            "queue": _tally(self.queue),
            "compute_input": _tally(self.compute_input),
            "compute_infer": _tally(self.compute_infer),
            "compute_output": _tally(self.compute_output),
            "cache_hit": _tally(self.cache_hit),
            "cache_miss": _tally(self.cache_miss),
        }

    def batches(self) -> list:
        """The `batch_stats` array, by batch size."""
        return [{"batch_size": size, **tally.as_dict()} for size, tally in sorted(self.batch_stats.items())]


cdef class BatchTally:
    """Times of the executions of one batch size."""

    def as_dict(self) -> dict:
        """One entry of `batch_stats`, without its batch size."""
        return {
            "compute_input": _tally(self.compute_input),
            "compute_infer": _tally(self.compute_infer),
            "compute_output": _tally(self.compute_output),
        }


cdef class ResponseTally:
    """Counters of the responses at one position of their streams."""

    def as_dict(self) -> dict:
        """One entry of `response_stats`."""
        return {
            "compute_infer": _tally(self.compute_infer),
            "compute_output": _tally(self.compute_output),
            "success": _tally(self.success),
            "fail": _tally(self.fail),
            "empty_response": _tally(self.empty_response),
            "cancel": _tally(self.cancel),
        }
