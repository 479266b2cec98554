"""One way to ask a model outside the hot path: `ask(...)`, an asynchronous iterator of answers.
Layer 3 (engine).

Fronts, ensembles and calls of models have a AnswerSink of their own, which is told at once.  The only place where the engine
knows of asyncio.
"""

import asyncio
from collections import deque

from tisfast.engine.core cimport InferRequest
from tisfast.engine.interface cimport Runtime
from tisfast.wire.record cimport Answer, InferInput

from tisfast.errors import BY_STATUS, Internal, TisError
from tisfast.types import Status


cdef class AnswerQueue(AnswerSink):
    """See asking.pxd."""

    def __cinit__(self):
        self.unread = deque()

    cdef int submitted(self, Runtime runtime, InferRequest request) except -1:
        if not self.over:  # answered at once: nothing is left to cancel, and the request refers to us
            self.runtime, self.request = runtime, request
        return 0

    cdef int answered(self, InferRequest request, Answer answer, bint final) except -1:
        return self._told(answer, final)

    cdef int failed(self, InferRequest request, int status, str message, bint final) except -1:
        return self._told(BY_STATUS[Status(status)](message), final)

    cdef int cancel(self) except -1:
        request, self.request = self.request, None
        self.left = True
        self.unread.clear()
        if not self.over and request is not None:
            self.runtime.cancel(request)
        return 0

    cdef int _told(self, object what, bint final) except -1:
        if what is not None and not self.left:
            self.unread.append(what)
        self.over = final
        if final:
            self.request = None  # which refers to us
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)
        return 0


class Answers:
    """The answers to one request, in their order; see `ask`.  One reader; the request is cancelled when it goes."""

    def __init__(self, queue: AnswerQueue) -> None:
        self._queue = queue

    def __aiter__(self):
        """Itself."""
        return self

    async def __anext__(self):
        """The next Answer.

        Raises the TisError of one that is an error; a decoupled model may answer further after it.
        """
        cdef AnswerQueue queue = self._queue
        while not queue.unread:
            if queue.over:
                raise StopAsyncIteration
            if queue.reader is not None:
                raise RuntimeError("the answers to one request are read by two tasks")
            queue.reader = asyncio.get_running_loop().create_future()
            try:
                await queue.reader
            finally:
                queue.reader = None
        answer = queue.unread.popleft()
        if isinstance(answer, TisError):
            raise answer
        return answer

    async def only(self):
        """The one Answer of a model that is not decoupled.  Raises the TisError that it is."""
        async for answer in self:
            return answer
        raise Internal("the model ended this request without an answer")

    def cancel(self) -> None:
        """The answers that are still to come are not wanted: as if a client had left."""
        (<AnswerQueue>self._queue).cancel()

    def __del__(self) -> None:
        """Cancel the request."""
        self.cancel()


cdef object answers_of(AnswerQueue queue):
    return Answers(queue)


def ask(Runtime runtime, InferInput input, trace=None, InferRequest parent=None):
    """Ask a model; its answers.  Never raises for the request's sake: a refusal is its only answer.

    input: composed for the model (wire.compose); trace: that it becomes part of; parent: the request on whose behalf it
    is made.
    """
    cdef AnswerQueue queue = AnswerQueue()
    queue.submitted(runtime, runtime.submit(input, queue, trace, parent))
    return Answers(queue)
