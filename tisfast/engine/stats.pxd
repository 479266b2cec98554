# Counters of one model version: additions on the hot path, read by /stats and /metrics.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef struct Tally:
    uint64_t count
    uint64_t ns

# When one execution passed its stations, CLOCK_MONOTONIC ns; equal for all requests of its batch.
cdef struct Times:
    int64_t taken_ns, infer_start_ns, infer_end_ns, done_ns
    uint32_t executed  # requests that `execute` was given, told once for each execution; else 0

cdef enum FailureReason:
    REJECTED, CANCELED, BACKEND, OTHER
    MISTAKEN  # the request's own fault, found late: not counted, like those that fronts refuse

cdef enum ResponseKind:
    RESPONSE_GOOD, RESPONSE_FAILED, RESPONSE_EMPTY, RESPONSE_CANCELED

cdef class Statistics:
    cdef Tally success, fail, queue, compute_input, compute_infer, compute_output, cache_hit, cache_miss
    cdef readonly uint64_t inference_count, execution_count
    cdef public uint64_t last_inference_ms     # since the epoch
    cdef readonly uint64_t pending             # in the queue; what is handed ahead is in none (Runtime.pending)
    cdef readonly uint64_t rejected, canceled, backend_failed, other_failed
    cdef readonly dict batch_stats             # batch size -> BatchTally
    cdef readonly list responses               # ResponseTally by position in the stream; empty unless decoupled
    cdef void count_success(self, uint32_t batch, Times *t, int64_t queued_ns, int64_t now_ns) noexcept
    # A request whose answer was kept: lookup_ns of its time went into finding it.
    cdef void count_hit(self, int64_t queued_ns, int64_t lookup_ns, int64_t now_ns) noexcept
    # One that had to be executed: what finding that out and keeping its answer took.
    cdef void count_miss(self, int64_t ns) noexcept
    cdef void count_failure(self, FailureReason reason, int64_t ns) noexcept
    cdef int count_execution(self, uint32_t batch, Times *t) except -1
    # Response number `index` of a decoupled model's request, on which work began at `since_ns`.
    cdef int count_response(self, uint32_t index, ResponseKind kind, Times *t, int64_t since_ns) except -1

cdef class BatchTally:
    cdef Tally compute_input, compute_infer, compute_output

cdef class ResponseTally:
    cdef Tally compute_infer, compute_output, success, fail, empty_response, cancel
