"""The last step of an execution: its answers are written, shown to the server at once, and its requests let go.

All answers of a batch are encoded before one is shown (one publish and one bell); the requests are let go before
references are counted (TF_RETAINED tells the server to keep the input's memory).
"""

import sys
import time

from tisfast_worker.answer_record import AnswerWriter
from tisfast_worker.errors import ErrorCode
from tisfast_worker.memory_retry import ExecutionFailure
from tisfast_worker.native import TF_EARLY, TF_EXECUTED, TF_FINAL, TF_RESCHEDULE, TF_RETAINED
from tisfast_worker.send_lock import SendLock

_refcount = sys.getrefcount
_RESCHEDULED = (TF_RESCHEDULE, 0, 0, 0)
_EARLY = TF_FINAL | TF_RETAINED | TF_EARLY  # user code has the request in its hands: a release follows
_OVER = (TF_EXECUTED, 0, 0, 0)


class AnswerPublisher:
    """Publishes the answers of one instance whose model is not decoupled."""

    def __init__(self, model, plane, reader, trace):
        """`reader`: the BatchReader, which gets leases back; `trace(ids, traceback, error)` tells of a failure."""
        self._completions, self._outputs, self._foreign = plane.completions, plane.outputs, plane.foreign
        self._outputs.before_wait = self._show_part
        self.writer = AnswerWriter(model, plane.outputs, self.wrong)
        self._trace, self._now = trace, time.monotonic_ns
        self._free = reader.free
        # What a count of references reads when nobody else refers to the object differs between interpreters.
        self._unheld = _references([reader.new_lease()])[0]
        self._turn = SendLock()  # early answers come from any thread
        self._execution = None  # whose answers are being encoded
        self._answers = []  # (kind, status, meta_bytes, block), encoded and not in the ring
        self._owed = []  # the tickets that they are to, then those that have none yet
        self._uncounted = 0  # requests of the execution, until its first answer carries the number
        self._over = None  # its last ticket, where answers went early: the server is told when it is done

    def encode(self, requests, responses, execution):
        """Write the answers of what has run.  The caller lets go of both lists before it calls `show`.

        responses: None in the place of a request that is to be executed again; or the ExecutionFailure of all.
        """
        self._execution, self._owed, self._uncounted = execution, execution.tickets, len(requests)
        if execution.sent:
            self._over = execution.tickets[-1]
            requests, responses = self._leave_out(requests, responses, execution)
        self._write_all(requests, responses)

    def show(self, execution):
        """Put the batch's answers into the ring and let its leases go.

        What the model has queued may still read inputs where they lie, which are used again as soon as it is answered:
        so that is done before.
        """
        if execution.on_gpu:
            self.writer.wait_for_gpu()
        over, self._over = self._over, None
        uncounted = 0 if self._answers else self._uncounted  # the first answer tells them, where one is left
        self._show(execution)
        if over is not None:
            self._completions.put(_OVER, over, 0, (*execution.times, self._now()), uncounted)
        self._execution = None

    def refuse(self, execution):
        """Answer the requests that never reached the model."""
        taken_ns = execution.taken_ns
        for ticket, code, reason in execution.refused:
            written = self.writer.error(code, reason)
            self._completions.put(written, ticket, TF_FINAL, (taken_ns, taken_ns, taken_ns, self._now()), 0)

    # ---- answers that a sender is given while `execute` runs

    def deliver(self, request, response):
        """Show this answer at once, from any thread.  What goes wrong with it is the request's answer."""
        execution = request._execution
        with self._turn:
            written = self._write_foreign(request, response, _EarlyRequest(request))
            taken, start, _ = execution.times
            now = self._now()
            ticket = execution.ticket_of(request._lease)
            self._completions.put(written, ticket, _EARLY, (taken, start, now, now), 0)
            execution.answered(request)

    def _leave_out(self, requests, responses, execution):
        """(requests, responses) that are still to be answered; the execution's leases and tickets likewise."""
        kept = []
        for at, request in enumerate(requests):
            if id(request) in execution.sent:
                self._completions.release_when_gone(execution.leases[at], execution.tickets[at], execution.on_gpu)
            else:
                kept.append(at)
        execution.leases = [execution.leases[at] for at in kept]
        execution.tickets = self._owed = [execution.tickets[at] for at in kept]
        if responses.__class__ is list:
            responses = [responses[at] for at in kept]
        return [requests[at] for at in kept], responses

    # ---- the others

    def _write_all(self, requests, responses):
        """One answer to each request.  The writer turns what is wrong with one response into that request's error."""
        answers = self._answers
        if responses.__class__ is ExecutionFailure:
            for _ in requests:
                answers.append(self.writer.error(responses.code, responses.text))
            return
        foreign = self._foreign.open
        for at, response in enumerate(responses):
            request = requests[at]
            if response is None:
                answers.append(_RESCHEDULED)
            else:
                answers.append(
                    self._write_foreign(request, response) if foreign else self.writer.write(request, response)
                )

    def _write_foreign(self, request, response, told=None):
        """An answer that may be made of memory which was gone when it was read: then it is worth nothing.

        told: what the writer is to see as the request, if not the request.
        """
        written = self.writer.write(told or request, response)
        lost = request.lost() if request.windows else None
        if lost is None:
            return written
        if written[3]:
            self._outputs.put_back(written[3])
            if self.writer.device_arena is not None:
                self.writer.device_arena.given((written[3],))
        return self.writer.error(ErrorCode.INTERNAL, lost)

    def wrong(self, request, traceback, text):
        """One response is not as it must be: its request is told, and this is for the log."""
        self._trace([request.request_id()], traceback, text)

    def _show(self, execution):
        leases, tickets = execution.leases, execution.tickets
        if self._foreign.open:
            self._foreign.settle()
        if execution.arrays is not None:
            self._show_arrays(execution)
            return
        unheld = self._unheld
        retained = [count != unheld for count in _references(leases)]
        self._send(retained)
        if True in retained:
            for lease, held, ticket in zip(leases, retained, tickets):
                if held:
                    self._completions.release_when_gone(lease, ticket, execution.on_gpu)
                else:
                    self._free.append(lease)
            del lease
        else:
            self._free += leases
        leases.clear()
        self._answers.clear()

    def _show_arrays(self, execution):
        """While the model keeps any part of the batch's arrays, the input memory of all its requests stays."""
        lease, execution.arrays = [execution.arrays], None
        held = _references(lease)[0] != self._unheld
        self._send([held] * len(self._answers))
        if held:
            for ticket in execution.tickets:
                self._completions.release_when_gone(lease[0], ticket, execution.on_gpu)
        self._free += execution.leases
        execution.leases.clear()
        self._answers.clear()

    def _show_part(self):
        """The output arena is full in the middle of a batch: show what is encoded, or nothing comes back.

        Our own references to these requests cannot be told from the model's yet, so they count as retained, and the
        releases follow as soon as the batch, or what its arrays refer to, is let go.
        """
        count, execution = len(self._answers), self._execution
        if not count:
            return
        leases, tickets = execution.leases, execution.tickets
        self._send([True] * count)
        for lease, ticket in zip(leases[:count], tickets):
            held = lease if execution.arrays is None else execution.arrays
            self._completions.release_when_gone(held, ticket, execution.on_gpu)
        if execution.arrays is not None:
            self._free += leases[:count]
        del leases[:count]
        execution.tickets = tickets[count:]  # new lists: others may be looking through the old ones
        self._owed = self._owed[count:]
        self._answers.clear()

    def _send(self, retained):
        times = (*self._execution.times, self._now())
        self._completions.send(self._answers, self._owed, retained, times, self._uncounted)
        self._uncounted = 0


class _EarlyRequest:
    """A request as the answer writer is to see it: nothing goes by reference, as the model may go on writing to it."""

    _lease, windows, devices = object(), None, None

    def __init__(self, request):
        self.batch, self._head, self._request = request.batch, request._head, request
        self.output_places = request.output_places

    def request_id(self):
        """For the log."""
        return self._request.request_id()

    def is_cancelled(self):
        """Whether the client has left."""
        return self._request.is_cancelled()


def _references(objects):
    """How often each is referred to."""
    return [_refcount(item) for item in objects]
