# The answers to a request, for somebody who awaits them.  Layer 3 (engine).
from tisfast.engine.core cimport InferRequest, AnswerSink
from tisfast.engine.interface cimport Runtime

cdef class AnswerQueue(AnswerSink):
    """Answers that have come and were not read yet.  An answer that is not read keeps its block of the instance's output
    arena, so the worker of a decoupled model waits for a slow reader, as it does for a slow client."""
    cdef Runtime runtime
    cdef InferRequest request
    cdef object unread                   # deque of Answer, and of TisError in the place of one
    cdef object reader                   # Future of who waits for the next one, or None
    cdef bint over                       # nothing comes any more
    cdef bint left                       # nobody wants what comes

    cdef int submitted(self, Runtime runtime, InferRequest request) except -1
    cdef int cancel(self) except -1
    cdef int _told(self, object what, bint final) except -1

# An iterator over what comes to a queue.
cdef object answers_of(AnswerQueue queue)
