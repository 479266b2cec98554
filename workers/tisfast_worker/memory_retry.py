"""Handles an execution that ran out of memory: caches are emptied, then it is tried again or answered.

A model's `execute` may have changed its inputs, or the world, before it raised, so it is executed again only where its
configuration says that it may be (parameter OUT_OF_MEMORY_RETRY, docs/resources.md).
"""

from tisfast_worker.errors import ErrorCode, TritonError
from tisfast_worker.failure import Refusal, failure_texts, missing_module
from tisfast_worker.memory_shortage import empty_caches, shortage_of
from tisfast_worker.response import InferenceResponse
from tisfast_worker.serving_context import current

NEVER, ONCE, HALVES = "never", "once", "halves"


class ExecutionFailure:
    """An execution that failed as a whole.  `text`: what each of its requests is told, with `code`.

    shortage: the Shortage, if that is why; then `traceback` and `line` have not been logged.
    """

    __slots__ = ("code", "line", "shortage", "text", "traceback")

    def __init__(self, code, text, shortage=None, traceback="", line=""):
        """See the class."""
        self.code, self.text = code, text
        self.shortage, self.traceback, self.line = shortage, traceback, line

    def responses(self, requests):
        """The failure as a response to each request."""
        return [InferenceResponse([], error=TritonError(self.text, self.code)) for _ in requests]


class MemoryRetry:
    """Handles failures of executions of one instance.  trace(ids, traceback, line): logs a failure once."""

    def __init__(self, model, trace):
        """`model.retry`: NEVER, ONCE or HALVES."""
        self._model, self._trace, self._mode = model, trace, model.retry

    def failure(self, requests, error):
        """The failure of the requests of an execution that raised; logged, unless it tells of a shortage, or ends the
        instance, which logs it.

        The caller lets go of the exception, and of the model's memory with it, before it calls `retry`.
        """
        shortage = shortage_of(error)
        try:
            text, traceback, line = failure_texts(error)
        except MemoryError:
            text = line = type(error).__name__
            traceback = ""
        if shortage is None:
            if not getattr(error, "is_told", False):
                self._trace(_ids(requests), traceback, line, missing_module(error))
            told = text if isinstance(error, Refusal) else self._model.failed_text(text)
            code = getattr(error, "code", None) if isinstance(error, Refusal) else None
            return ExecutionFailure(ErrorCode.INTERNAL if code is None else code, told)
        return ExecutionFailure(ErrorCode.UNAVAILABLE, text, shortage, traceback, line)

    def retry(self, requests, failure, attempt):
        """Responses, or the ExecutionFailure that is told.  attempt(requests): executes; gives the same."""
        emptied = empty_caches()
        if self._mode == NEVER:
            return self._told(requests, failure, emptied)
        self._say(requests, failure, emptied, "the batch is executed again")
        return self._settled(requests, attempt(requests), attempt)

    def give_up(self, requests, failure):
        """The ExecutionFailure that is told where a part of the batch is answered already: it is not executed again."""
        return failure if failure.shortage is None else self._told(requests, failure, empty_caches())

    def _settled(self, requests, outcome, attempt):
        if outcome.__class__ is not ExecutionFailure or outcome.shortage is None:
            return outcome
        emptied = empty_caches()
        if self._mode != HALVES or len(requests) == 1:
            return self._told(requests, outcome, emptied)
        self._say(requests, outcome, emptied, "its halves are executed")
        middle = (len(requests) + 1) // 2
        responses = []
        for part in (requests[:middle], requests[middle:]):
            found = self._settled(part, attempt(part), attempt)
            responses += found.responses(part) if found.__class__ is ExecutionFailure else found
        return responses

    def _told(self, requests, failure, emptied):
        """Logged here, once; what clients read says what to do."""
        self._trace(_ids(requests), failure.traceback, f"{failure.line} ({failure.shortage}; {_of(emptied)})")
        text = (
            f"instance {self._model.instance} of model '{self._model.name}' {failure.shortage} executing a batch of "
            f"{len(requests)}; {_of(emptied)}; retry later, with a smaller batch, or give the model more memory: "
            f"{failure.text}"
        )
        return ExecutionFailure(ErrorCode.UNAVAILABLE, self._model.failed_text(text))

    def _say(self, requests, failure, emptied, what):
        text = f"{failure.shortage} executing a batch of {len(requests)}: {failure.line}; {_of(emptied)}; {what}"
        current().log("WARN", text, "memory_retry.py", 0)


def _ids(requests):
    return [request.request_id() for request in requests]


def _of(emptied):
    return f"the caches of {', '.join(emptied)} were emptied" if emptied else "there were no caches to empty"
