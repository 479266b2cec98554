"""Requests that no client sent: an instance executes them before it is ready (row 15.42).  Layer 3 (engine).

They pass no queue, no sequence slots and no rate limiter: an instance that is not ready takes nothing from those that are.
The model's counters count them, as Triton's do.
"""

from libc.stdint cimport int64_t, uint32_t

from tisfast.engine.core cimport InferRequest, Link
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.wire.record cimport Answer, InferInput

from tisfast.config.scheduler import SchedulerSettings


cdef class Sink(Reply):
    """See warm_up.pxd."""

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        return self._ended() if final else 0

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        self.errors.append(message)
        return self._ended() if final else 0

    def _ended(self) -> int:
        self.open -= 1
        if self.open == 0:
            self.done()
        return 0


def rehearsal_of(ModelRuntime runtime) -> ModelRuntime:
    """Where an instance's answers go until it is ready: the model's counters, and nothing else of it."""
    made = ModelRuntime(runtime.signature, runtime.arena, SchedulerSettings(), runtime.clock, runtime.config)
    made.stats = runtime.stats
    made.timings = runtime.timings
    return made


def execute_together(ModelRuntime rehearsal, Link link, list inputs, done) -> Sink:
    """Have an instance execute these inputs (of InferInput, at most as many as `link` has room for) as one batch.

    done: called when the last one has its final answer.
    """
    cdef Sink sink = Sink.__new__(Sink)
    cdef int64_t now_ns = rehearsal.clock.now_ns()
    cdef InferRequest request
    cdef InferInput input
    cdef list batch = []
    sink.errors, sink.open, sink.done = [], len(inputs), done
    for input in inputs:
        request = InferRequest.__new__(InferRequest)
        request.input, request.reply, request.queued_ns = input, sink, now_ns
        request.slot = <uint32_t>len(batch)  # of a sequence model: side by side, as if each began there
        batch.append(request)
    rehearsal.stats.pending += len(batch)
    rehearsal.dispatch(link, batch, now_ns)
    return sink
