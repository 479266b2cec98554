"""Requests that no client sent: an instance executes them before it is ready.  Layer 3 (engine).

They pass no queue, no sequence slots and no rate limiter: an instance that is not ready takes nothing from those that are.
The model's counters count them, as Triton's do.
"""

from libc.stdint cimport int64_t, uint32_t

from tisfast.engine.asking cimport AnswerQueue, answers_of
from tisfast.engine.core cimport InferRequest, Link
from tisfast.engine.runtime cimport ModelRuntime
from tisfast.wire.record cimport InferInput

from tisfast.config.scheduler_settings import SchedulerSettings


def rehearsal_of(ModelRuntime runtime) -> ModelRuntime:
    """Where an instance's answers go until it is ready: the model's counters, and nothing else of it."""
    made = ModelRuntime(runtime.signature, runtime.arena, SchedulerSettings(), runtime.clock, runtime.config)
    made.stats = runtime.stats
    made.timings = runtime.timings
    return made


def ask_instance(ModelRuntime rehearsal, Link link, list inputs) -> list:
    """Have an instance execute these inputs (of InferInput, at most as many as `link` has room for) as one batch.

    The Answers of each, as of engine.asking.ask.
    """
    cdef int64_t now_ns = rehearsal.clock.now_ns()
    cdef InferRequest request
    cdef InferInput input
    cdef AnswerQueue queue
    cdef list batch = [], found = []
    for input in inputs:
        queue = AnswerQueue()
        request = InferRequest.__new__(InferRequest)
        request.input, request.sink, request.queued_ns = input, queue, now_ns
        request.slot = <uint32_t>len(batch)  # of a sequence model: side by side, as if each began there
        queue.submitted(rehearsal, request)
        batch.append(request)
        found.append(answers_of(queue))
    rehearsal.stats.pending += len(batch)
    rehearsal.dispatch(link, batch, now_ns)
    return found
