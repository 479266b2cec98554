# Requests on their way through the engine, and the two faces it shows: AnswerSink (to fronts), Link (to workers).
# Layer 3 (engine): no socket, no process, no clock of its own.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from tisfast.engine.rate_limiter cimport Claim
from tisfast.engine.stats cimport FailureReason, Times
from tisfast.native.memory cimport Arena
from tisfast.wire.record cimport Answer, InferInput

cdef class Link

cdef class AnswerSink:
    """Where answers go.  Fronts subclass it.  For each submitted request exactly one call has `final` set, and none comes
    after it; only decoupled models answer with more than one call.  May be called before `submit` returns."""
    # `answer` is None only together with `final`: a decoupled model has ended without a further response.
    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1
    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1

cdef class RequestRefusal:
    """Why a request is not served."""
    cdef readonly int status
    cdef readonly str message
    cdef FailureReason reason

cdef class InferRequest:
    cdef readonly InferInput input       # None once answered
    cdef AnswerSink sink
    cdef readonly InferRequest parent    # on whose behalf this one runs (ensemble step, a model's call), or None
    cdef readonly bint cancelled
    cdef readonly int64_t queued_ns
    cdef readonly int64_t expires_ns     # 0: never
    cdef int64_t dispatched_ns
    cdef uint32_t execution_batch        # inferences of the batch that it was dispatched with
    cdef uint64_t order                  # position among the model's answers, for preserve_ordering
    cdef bint refused                    # was not queued: its answer waits for no other (preserve_ordering)
    cdef bint timed_out                  # past its queue timeout (action DELAY)
    cdef bint queued                     # waits in the scheduler
    cdef bint closes_batch               # last of its dispatched batch
    cdef bint early                      # answered while its execution goes on
    cdef Link link                       # the instance that it was dispatched to, while it is there; else None
    cdef uint64_t batch_first, batch_end  # the link's: tickets of the first and the last slot of its dispatched batch
    cdef uint32_t slot                   # which of its instance's sequence slots it belongs to
    cdef object place                    # the sequence that it is part of
    cdef object level                    # the queue that it waits in (policy_queue.pxd)
    cdef object facts                    # what a custom batching strategy knows of it (strategy.Candidate), else None
    cdef RequestRefusal refusal                 # set by the scheduler that hands it back
    cdef readonly bint done
    cdef readonly bint executed          # a model may have executed it, or a part of it
    cdef list calls                      # engine.calls.Call: what its model asks of others on its behalf, or None
    cdef public object trace             # telemetry.trace.Trace of a sampled request, else None
    cdef uint32_t responses              # of a decoupled model: told so far
    cdef int64_t answered_ns             # the same: when the last one was ready, 0 none was
    cdef bytes cache_key                 # by which its answer is kept; None: it is not
    cdef bint looking                    # waits for copies of its inputs, its key, or what a remote cache knows
    cdef object copying                  # what threads copy for it now: it has `cancel()`; or None
    cdef object unmade                   # deque: its answers that threads still copy parts of, and what follows them; or None
    cdef tuple uncopyable                # status and text that its answers get which need a copy, or None
    cdef int64_t lookup_ns               # what asking the cache took
    cdef bint released                   # the worker let go of the input memory before the final answer
    cdef readonly Times times            # of its (last) execution; all zero when it never reached an instance

cdef class Clock:
    """Monotonic nanoseconds, and milliseconds since the epoch.  The app passes the machine's, tests a hand-moved one."""
    cdef int64_t now_ns(self) noexcept
    cdef int64_t epoch_ms(self) noexcept

cdef class Link:
    """One instance as the engine sees it.  The supervisor's subclass writes rings; the tests' one is a list."""
    cdef public str instance
    cdef readonly Arena output           # where its answers lie, or None
    cdef readonly bint up                # may be given work
    cdef readonly uint32_t inflight      # requests dispatched, not answered for the last time
    cdef readonly uint32_t batches       # batches dispatched, not wholly answered; of a decoupled model: not executed
    cdef public Claim claim              # on what executions share, None where nothing limits them
    cdef bint crowded                    # its ring may still have slots of batches that were taken back
    # Of the execution that runs: what it has answered before its end, which keeps the instance busy all the same.
    cdef uint32_t early_requests, early_batches, early_inferences
    cdef int64_t progress_ns             # when it was last given work while idle, or has answered
    cdef int64_t execution_ns            # moving mean of one execution, 0 unknown
    # Hand over one batch (list of InferRequest) and wake the worker.  The link keeps the requests until it reports each
    # to the model.  `room` says how many requests it can take now.
    cdef int dispatch(self, list batch, int64_t now_ns) except -1
    cdef uint32_t room(self) noexcept
    # Take back what its worker has not begun: the batch of `request`, or every batch (None).  Returns their requests, oldest
    # first, which the link forgets; it leaves the counters here to the model.
    cdef list recall(self, InferRequest request)
    # Requests dispatched that its worker has not begun.
    cdef uint32_t waiting(self) except? 0xFFFFFFFF
    # A request to its model is nearly there.
    cdef int expect(self) except -1
    cdef object calls                    # engine.calls.Calls: what its model asks of others, or None
    # Whether this request was dispatched to it and is not answered.  Slow: only for the search for deadlocks.
    cdef bint has(self, InferRequest request) except -1
