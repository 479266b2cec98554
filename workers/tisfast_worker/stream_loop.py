"""The loop of decoupled models: take a batch, start it, take the next.  Answers go out through the Outlet, any time."""

import time

from tisfast_worker import limits
from tisfast_worker.errors import ErrorCode
from tisfast_worker.failure import WireError
from tisfast_worker.loop import CANCELLED_TEXT, Loop
from tisfast_worker.outlet import Outlet
from tisfast_worker.request import FLAG_CANCELLED, NOT_ITERATIVE
from tisfast_worker.served import PROCESS


class StreamLoop(Loop):
    """Serves one decoupled model instance until the channel says stop and every stream has ended."""

    def __init__(self, model, backend, plane, trace):
        """`backend.start(requests)` starts an execution; `backend.failed` is called for what raises later."""
        super().__init__(model, backend.start, plane, trace)
        self._outlet = Outlet(model, plane, trace)
        self._outputs.before_wait = _nothing  # every answer is shown when it is made
        backend.failed, backend.rescheduled = self._failed, self._rescheduled

    @property
    def call_arena(self):
        """Where calls are written."""
        return self._outlet.call_arena

    def run(self):
        """Until stop is set, submit is empty and all streams have ended."""
        super().run()
        self._outlet.drain()

    def _idle(self, wait):
        """As Loop's, but not for ever while streams are open: what their finalisers left behind is sent here."""
        while True:
            self._outlet.rest()
            if PROCESS.calls is not None:
                PROCESS.calls.rest()
            self._foreign.rest(self._pending)
            timeout_ns = limits.REST_SECONDS * 1000000000 if self._outlet.open_streams else -1
            pending = wait(self._channel.base, 0, timeout_ns)
            if pending or self._channel.stopping:
                return pending

    def _batch(self, pending):
        slots = self._take(pending)
        taken_ns = time.monotonic_ns()
        requests = self._open(slots, taken_ns)
        start_ns = time.monotonic_ns()
        if requests:
            self._tickets = [request._sender.ticket for request in requests]
            for request in requests:
                request._sender.started_ns = start_ns
            failure = self._run_model(requests)
            if failure is not None:
                self._end_all(requests, failure)
        end_ns = time.monotonic_ns()
        # Counted whether or not anything ran: the server waits for it before the next batch.
        self._outlet.executed(slots[0][4], len(requests), (taken_ns, start_ns, end_ns, end_ns))
        return len(slots)

    def _open(self, slots, taken_ns):
        """The batch's requests, each with its sender."""
        requests, refuse = [], self._outlet.refuse
        for _, _, _, nbytes, ticket, offset, _, told, _ in slots:
            if told != self._foreign.told:
                self._foreign.catch_up(told)
            lease = self._lease_type.from_address(self._lease_at)
            try:
                request = self._reader.read(offset, nbytes, lease)
            except WireError as error:
                refuse(ticket, ErrorCode.INTERNAL, str(error), taken_ns)
                continue
            if request._flags & FLAG_CANCELLED:
                refuse(ticket, ErrorCode.CANCELLED, CANCELLED_TEXT, taken_ns)
                continue
            self._completions.release_when_gone(lease, ticket)
            request._sender = self._outlet.open(request, ticket, taken_ns)
            requests.append(request)
        return requests

    def _failed(self, requests, error):
        """An execution raised after it had returned to us: a coroutine."""
        self._model.forget_rescheduled(requests)
        failure = self._relief.failure(requests, error)
        del error
        if failure.shortage is not None:
            failure = self._relief.relieve(requests, failure, None)  # never again: parts may have been sent
        self._end_all(requests, failure)

    def _rescheduled(self, requests):
        """An execution has ended whose requests asked for another one."""
        for request in requests:
            if self._model.iterative:
                self._outlet.reschedule(request._sender)
            else:
                self._outlet.fail(request._sender, ErrorCode.INTERNAL, NOT_ITERATIVE)

    def _end_all(self, requests, failure):
        for request in requests:
            self._outlet.fail(request._sender, failure.code, failure.text)


def _nothing():
    """There is nothing to show."""
