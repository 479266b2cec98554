# How many requests each step of an ensemble may have with its model.  Layer 3 (engine).
from libc.stdint cimport uint32_t

cdef enum Entry:
    WAITS = 0
    ADMITTED = 1
    NO_ROOM = 2                     # as many wait already as may

cdef class StepLimits:
    """max_inflight_requests of all steps of one ensemble, over all its requests.  Steps are numbers; entries are objects."""
    cdef readonly uint32_t running_max
    cdef readonly Py_ssize_t waiting
    cdef list running               # by step
    cdef list queues                # by step: deque of (owner, who)
    # Behind those that wait for the same step.
    cdef int enter(self, int step, object owner, object who) except -1  # an Entry
    cdef int leave(self, int step) except -1
    # Who has waited longest for a place that is free now, admitted; None: nobody.
    cdef object admit_next(self)
    # All of an owner's that wait wait no longer.
    cdef int forget(self, object owner) except -1
