"""The machine's clock for the engine.  Layer 4 (processes)."""

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from tisfast.engine.core cimport Clock

cdef extern from "<time.h>":
    enum: CLOCK_REALTIME_COARSE



cdef class MachineClock(Clock):
    """CLOCK_MONOTONIC, as the workers use it, and the wall clock for statistics."""

    cdef int64_t now_ns(self) noexcept:
        cdef timespec t
        clock_gettime(CLOCK_MONOTONIC, &t)
        return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec

    cdef int64_t epoch_ms(self) noexcept:
        cdef timespec t
        clock_gettime(CLOCK_REALTIME_COARSE, &t)  # milliseconds of precision are asked for, at a quarter of the cost
        return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000
