"""Histograms of request durations.  Layer 3 (engine).

One addition into a fixed array for each duration: no allocation, no lock, no logarithm (the position of the highest bit
is one).  Bounds that are powers of two microseconds lie on bucket edges, so what Prometheus is told of them is exact.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    int __builtin_clzll(unsigned long long x) noexcept

cdef enum:
    STEPS = 32        # buckets for each doubling
    STEPS_LOG2 = 5

cdef uint64_t MICROSECONDS_MAX = (<uint64_t>1 << 36) - 1


cdef inline int bucket_of(uint64_t microseconds) noexcept:
    cdef int top
    if microseconds < STEPS:
        return <int>microseconds
    top = 63 - __builtin_clzll(microseconds)
    return ((top - STEPS_LOG2) << STEPS_LOG2) + <int>(microseconds >> (top - STEPS_LOG2))


cdef inline double middle_of(int bucket) noexcept:
    """Microseconds in the middle of a bucket."""
    cdef int doublings = bucket >> STEPS_LOG2
    if doublings < 2:
        return <double>bucket
    doublings -= 1
    return (<double>(bucket - (doublings << STEPS_LOG2)) + 0.5) * <double>(<uint64_t>1 << doublings)


cdef class Histogram:
    """See histogram.pxd."""

    cdef void add(self, int64_t ns) noexcept:
        cdef uint64_t spent = <uint64_t>ns if ns > 0 else 0
        self.count += 1
        self.total_ns += spent
        self.counts[bucket_of(min(spent // 1000, MICROSECONDS_MAX))] += 1

    def observe(self, int64_t ns) -> None:
        """`add`, for tests and figures."""
        self.add(ns)

    def copy(self) -> Histogram:
        """A copy of the present state."""
        cdef Histogram other = Histogram.__new__(Histogram)
        other.count, other.total_ns = self.count, self.total_ns
        memcpy(other.counts, self.counts, sizeof(self.counts))
        return other

    def below(self, int power) -> int:
        """How many took less than 2**power microseconds."""
        cdef int end = bucket_of(min(<uint64_t>1 << power, MICROSECONDS_MAX)), i
        cdef uint64_t found = 0
        for i in range(end):
            found += self.counts[i]
        return found

    def quantiles(self, wanted, Histogram since=None) -> list:
        """Microseconds below which each share in `wanted` (0 to 1) lies, of what was added after the copy `since`.

        nan when nothing was.
        """
        cdef uint64_t total = self.count - (since.count if since is not None else 0)
        return [quantile_of(self, share, total, since) if total else float("nan") for share in wanted]


cdef double quantile_of(Histogram one, double share, uint64_t total, Histogram since) except? -1:
    cdef uint64_t rank = min(<uint64_t>(min(max(share, 0.0), 1.0) * <double>total), total - 1), seen = 0
    cdef int i
    for i in range(HISTOGRAM_BUCKETS):
        seen += one.counts[i] - (since.counts[i] if since is not None else 0)
        if seen > rank:
            return middle_of(i)
    return middle_of(HISTOGRAM_BUCKETS - 1)


cdef class FirstResponse:
    """See histogram.pxd.  bounds_ms: ascending upper ends of the buckets, at most BOUNDS_MAX of them."""

    def __cinit__(self, bounds_ms):
        self.bounds_ms = tuple(float(bound) for bound in bounds_ms)[:BOUNDS_MAX]
        self.bounds_count = <int>len(self.bounds_ms)
        for i, bound in enumerate(self.bounds_ms):
            self.bounds_ns[i] = bound * 1e6

    cdef void add(self, int64_t ns) noexcept:
        cdef int i = 0
        while i < self.bounds_count and <double>ns > self.bounds_ns[i]:
            i += 1
        self.counts[i] += 1
        self.total_ns += <uint64_t>ns if ns > 0 else 0

    def observe(self, int64_t ns) -> None:
        """`add`, for tests."""
        self.add(ns)

    def cumulative(self) -> list:
        """How many took at most each bound, and how many there were."""
        cdef int i
        cdef uint64_t seen = 0
        found = []
        for i in range(self.bounds_count + 1):
            seen += self.counts[i]
            found.append(seen)
        return found


cdef class Timings:
    """See histogram.pxd.  first_response_bounds_ms: of the model's configuration, or the default's."""

    def __cinit__(self, first_response_bounds_ms):
        self.request, self.queue, self.compute = Histogram(), Histogram(), Histogram()
        self.compute_input, self.compute_infer, self.compute_output = Histogram(), Histogram(), Histogram()
        self.first_response = FirstResponse(first_response_bounds_ms)

    cdef void add(self, Times *t, int64_t queued_ns, int64_t now_ns) noexcept:
        self.request.add(now_ns - queued_ns)
        self.queue.add(t.taken_ns - queued_ns)
        self.compute_input.add(t.infer_start_ns - t.taken_ns)
        self.compute_infer.add(t.infer_end_ns - t.infer_start_ns)
        self.compute_output.add(t.done_ns - t.infer_end_ns)
        self.compute.add(t.done_ns - t.taken_ns)

    cdef void add_hit(self, int64_t lookup_ns) noexcept:
        self.request.add(lookup_ns)
        self.queue.add(0)
        self.first_response.add(lookup_ns)

    def time_of(self, int rounds) -> int:
        """Nanoseconds that `rounds` requests cost here: for perf/micro and nobody else."""
        cdef Times t
        cdef int64_t i
        t.taken_ns, t.infer_start_ns, t.infer_end_ns, t.done_ns = 5_000, 9_000, 40_000, 44_000
        for i in range(rounds):
            t.infer_end_ns = 40_000 + (i & 0xFFFF)
            self.add(&t, 0, 60_000 + (i & 0xFFFFF))
            self.first_response.add(60_000 + i)
        return rounds
