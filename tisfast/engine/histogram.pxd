# How long requests of one model version took: additions on the hot path, read by /metrics.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.stats cimport Times

cdef enum:
    HISTOGRAM_BUCKETS = 1024  # 32 for each doubling of a microsecond, up to 2**36 us: 3 % of resolution in 8 KiB
    BOUNDS_MAX = 64

cdef class Histogram:
    """Durations in log-linear buckets: exact below 32 us, 3 % above."""
    cdef uint64_t counts[HISTOGRAM_BUCKETS]
    cdef readonly uint64_t count, total_ns
    cdef void add(self, int64_t ns) noexcept

cdef class FirstResponse:
    """Milliseconds to the first response, in the buckets that the model's configuration names."""
    cdef readonly tuple bounds_ms
    cdef int bounds_count
    cdef double bounds_ns[BOUNDS_MAX]
    cdef uint64_t counts[BOUNDS_MAX + 1]
    cdef readonly uint64_t total_ns
    cdef void add(self, int64_t ns) noexcept

cdef class Timings:
    """Every duration of one model version's successful requests."""
    cdef readonly Histogram request, queue, compute_input, compute_infer, compute_output, compute
    cdef readonly FirstResponse first_response
    cdef void add(self, Times *t, int64_t queued_ns, int64_t now_ns) noexcept
    # Of a request whose answer was kept: it waited for nothing else.
    cdef void add_hit(self, int64_t lookup_ns) noexcept
