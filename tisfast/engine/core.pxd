# Requests on their way through the engine, and the two faces it shows: Reply (to fronts), Link (to workers).
# Layer 3 (engine): no socket, no process, no clock of its own.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.wire.record cimport Answer, InferInput

cdef class Reply:
    """Where an answer goes.  Fronts subclass it; exactly one of the two is called, once, for each submitted request
    (decoupled models will call `answered` many times).  May be called before `submit` returns."""
    cdef int answered(self, InferRequest request, Answer answer) except -1
    cdef int failed(self, InferRequest request, int status, str message) except -1

cdef class InferRequest:
    cdef readonly InferInput input
    cdef Reply reply
    cdef readonly bint cancelled
    cdef readonly int64_t arrival_ns     # the front saw the first byte
    cdef readonly int64_t queued_ns
    cdef readonly int64_t expires_ns     # 0: never
    cdef int64_t dispatched_ns
    cdef bint timed_out                  # past its queue timeout (action DELAY)
    cdef readonly bint done

cdef class Clock:
    """Monotonic nanoseconds.  The app passes the machine's, tests a hand-moved one."""
    cdef int64_t now_ns(self) noexcept

cdef class Link:
    """One instance as the engine sees it.  The supervisor's subclass writes rings; the tests' one is a list."""
    cdef public str instance
    cdef readonly int inflight           # requests dispatched, not answered
    cdef readonly bint up                # may be given work
    # Hand over one batch (list of InferRequest).  The link keeps them until it reports each to the model.
    cdef int dispatch(self, list batch) except -1
    # Make dispatched batches visible and wake the worker; called once after a run of dispatches.
    cdef int flush(self) except -1
