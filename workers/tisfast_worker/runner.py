"""The second step of an execution: the model runs.  Whatever a model raises is the model's: the worker goes on."""

import functools

from tisfast_worker.memory_retry import ExecutionFailure, MemoryRetry


class Runner:
    """Calls the backend; out of memory, what memory_retry.py says."""

    def __init__(self, model, execute, trace):
        """execute(requests, execution): the backend's; trace(ids, traceback, error): tells of a failure."""
        self._execute, self._retry = execute, MemoryRetry(model, trace)

    def run(self, requests, execution):
        """The backend's responses, or one ExecutionFailure for all."""
        given = requests
        if execution.seen is not None:
            given, execution.seen = execution.seen, None
        outcome = self._attempt(given, execution)
        if outcome.__class__ is ExecutionFailure and outcome.shortage is not None:
            return self._retry.retry(given, outcome, functools.partial(self._attempt, execution=execution))
        return outcome

    def _attempt(self, requests, execution):
        """Execute once: a failure for want of memory is neither logged nor tried again."""
        execution.attempts += 1
        try:
            return self._execute(requests, execution)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: a worker ends when its server says so
            sent = getattr(error, "sent", None) or execution.take_answers()
            execution.forget_rescheduled()
            failure = self._retry.failure(requests, error)
        return self._beside_sent(requests, sent, failure) if sent else failure

    def _beside_sent(self, requests, sent, failure):
        """The outcome of a failed execution: what a sender was given stays that request's answer, the others fail."""
        given = {at: answer.settle() for at, answer in sent.items()}
        if not any(given.values()):
            return failure
        failure = self._retry.give_up(requests, failure)
        failed = failure.responses(requests)
        return [given.get(id(request)) or failed[at] for at, request in enumerate(requests)]

    def failed_later(self, requests, execution, error):
        """The ExecutionFailure of a coroutine, which raised after `execute` had returned.  It is not tried again."""
        execution.forget_rescheduled()
        failure = self._retry.failure(requests, error)
        del error
        return failure if failure.shortage is None else self._retry.retry(requests, failure, None)


class SequenceRunner:
    """Around a Runner, for models with sequences that are not decoupled: what they keep is taken out of the answers."""

    def __init__(self, runner, sequences, publisher):
        """`sequences`: the Sequences of the instance; `publisher`: shows answers that come early."""
        self._runner, self._sequences, self._publisher = runner, sequences, publisher

    def run(self, requests, execution):
        """Run the inner runner on the real requests; None where one wants to be executed again."""
        seen = execution.seen
        responses = self._runner.run(requests, execution)
        if responses.__class__ is ExecutionFailure:
            return responses
        kept = []
        for request, response in zip(seen, responses):
            if request.null:
                continue
            if response is not None and id(request) not in execution.sent:
                self._keep(request, response)
            kept.append(response)
        return kept

    def deliver(self, request, response):
        """Deliver an answer, after the sequence's state is kept."""
        self._keep(request, response)
        self._publisher.deliver(request, response)

    def _keep(self, request, response):
        wrong = self._sequences.keep(self._sequences.states(request.slot), response)
        if wrong:
            self._publisher.wrong(request, "", wrong)
        self._sequences.leave(request)
