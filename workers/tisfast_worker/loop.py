"""The hot loop: take a batch from the submit ring, execute it, answer it.  One thread, no lock, log or copy of its own.

Order within a batch, each step for a reason: head advances before anything executes (after a crash the server knows
what was taken); all answers are encoded before one is shown (one publish and one bell to a batch); the requests are let
go before references are counted (TF_RETAINED tells the server to keep the input's memory).
"""

import sys
import threading
import time

from tisfast_worker import limits
from tisfast_worker.answer import AnswerWriter
from tisfast_worker.call_record import NOBODY, CallArena
from tisfast_worker.completions import lease_type
from tisfast_worker.errors import ErrorCode
from tisfast_worker.failure import WireError
from tisfast_worker.foreign import FLAG_FOREIGN
from tisfast_worker.native import SLOT_BYTES, SUBMIT_SLOT, TF_EXEC
from tisfast_worker.record import RequestReader
from tisfast_worker.relief import Failure, Relief
from tisfast_worker.request import FLAG_CANCELLED
from tisfast_worker.sender import take_answers
from tisfast_worker.served import PROCESS

_UNUSUAL = FLAG_CANCELLED | FLAG_FOREIGN
_refcount = sys.getrefcount
CANCELLED_TEXT = "Request cancelled: the client left before the request ran"


class Loop:
    """Serves one model instance until the channel says stop."""

    def __init__(self, model, execute, plane, trace):
        """`execute`: list of requests to list of responses; `trace(ids, traceback, error)` tells of a failure."""
        self._model, self._execute, self._relief = model, execute, Relief(model, trace)
        self._trace = trace
        self._channel, self._library = plane.channel, plane.library
        self._advance = plane.library.tf_ring_take
        self._completions, self._outputs = plane.completions, plane.outputs
        self._outputs.before_wait = self._show_early
        self._foreign = plane.foreign
        self._slots, self._now = self._channel.raw.fields(SUBMIT_SLOT), time.monotonic_ns
        self._reader = RequestReader(model, plane.inputs.memory, plane.foreign)
        self._writer = AnswerWriter(model, plane.outputs, self._wrong)
        self._lease_type, self._lease_at = lease_type(plane.inputs.nbytes), plane.inputs.base
        self._free = []  # leases nobody refers to; each covers the whole arena
        self._head = 0  # submit slots taken
        # The batch at hand:
        self._leases = []  # of requests not yet in the complete ring
        self._tickets = []  # of the requests that `_leases` are of
        self._owed = []  # tickets that `_answers` are to, then those that have none yet
        self._answers = []  # (kind, status, meta_bytes, block), encoded and not in the ring, in the same order
        self._times = (0, 0, 0)  # taken, inference started, inference ended; CLOCK_MONOTONIC
        self._uncounted = 0  # requests of the execution, until its first answer carries the number
        # What a count of references reads when nobody else refers to the object differs between interpreters.
        self._unheld = _references([self._lease_type.from_address(self._lease_at)])[0]
        self.thread = 0  # the loop's own

    # ---- for the calls that the model makes (calls.py)

    @property
    def call_arena(self):
        """Where calls are written."""
        return CallArena(self._outputs, None)

    def parent(self):
        """Ticket of the batch that executes, or ended last."""
        return self._tickets[0] if self._tickets else NOBODY

    def ticket_of(self, lease):
        """Of the request that this lease is for; None: of none that the server knows to have its memory here."""
        ticket = lease.__dict__.get("ticket")
        if ticket is not None:
            return ticket
        for at, each in enumerate(self._leases):
            if each is lease:
                return self._tickets[at]
        return None

    # ---- batches

    def run(self):
        """Until stop is set and submit is empty."""
        self.thread = threading.get_ident()
        wait, channel, spin_ns = self._library.tf_worker_wait, self._channel.base, self._model.spin_ns
        rest_ns = limits.REST_SECONDS * 1000000000
        while True:
            pending = wait(channel, spin_ns, rest_ns)
            if pending == 0:  # idle for a while, or told to stop: the second wait tells which
                pending = self._idle(wait)
                if pending == 0:
                    return
            while pending:
                pending -= self._batch(pending)

    def _idle(self, wait):
        """Tidy up; then the slots of the next batch, however long it takes, or 0 to stop."""
        while True:
            self._tidy()
            pending = wait(self._channel.base, 0, -1)
            if pending or self._channel.stopping:
                return pending

    def _tidy(self):
        self._outputs.rest()
        self._completions.flush()
        if PROCESS.calls is not None:
            PROCESS.calls.rest()
        self._foreign.rest(self._pending)

    def _pending(self):
        return self._library.tf_ring_pending(self._channel.submit)

    def _batch(self, pending):
        """Serve the next batch; returns its slots."""
        slots = self._take(pending)
        taken_ns = self._now()
        self._outputs.collect_some()
        requests, tickets, refused = self._requests(slots)
        if requests:
            self._tickets = self._owed = tickets
            start_ns = self._now()
            responses = self._run_model(requests)
            self._times = (taken_ns, start_ns, self._now())
            self._uncounted = len(requests)
            self._encode(requests, responses)
            # From here on only user code can hold what the batch was made of.
            del requests, responses
            self._show()
        if refused:
            self._refuse(refused, taken_ns)
        return len(slots)

    def _take(self, pending):
        """The slots of one batch."""
        (mask, first), head = self._channel.submit_slots, self._head
        slot = self._slots.read(first + (head & mask) * SLOT_BYTES)
        slots = [slot]
        count = slot[2] + 1
        for at in range(head + 1, head + min(count, pending)):
            slots.append(self._slots.read(first + (at & mask) * SLOT_BYTES))
        self._head = head + len(slots)
        self._advance(self._channel.submit, len(slots))
        if count > pending or slot[0] != TF_EXEC:
            raise WireError(f"a batch of {count} slots of kind {slot[0]}, but {pending} are published")
        return slots

    def _requests(self, slots):
        """(requests, their tickets, [(ticket, code, reason)] of those that shall not run)."""
        requests, tickets, refused = [], [], []
        free, leases, reader = self._free, self._leases, self._reader
        for _, _, _, nbytes, ticket, offset, _, told, _ in slots:
            if told != self._foreign.told:
                self._foreign.catch_up(told)
            lease = free.pop() if free else self._lease_type.from_address(self._lease_at)
            try:
                request = reader.read(offset, nbytes, lease)
            except WireError as error:
                refused.append((ticket, ErrorCode.INTERNAL, str(error)))
                continue
            if request._flags & _UNUSUAL:
                if request._flags & FLAG_CANCELLED:
                    refused.append((ticket, ErrorCode.CANCELLED, CANCELLED_TEXT))
                    continue
                self._foreign.open += request.windows.values()
            requests.append(request)
            leases.append(lease)
            tickets.append(ticket)
        return requests, tickets, refused

    def _run_model(self, requests):
        """The model's responses, or one Failure for all.  Whatever a model raises is the model's: keep serving."""
        outcome = self._attempt(requests)
        if outcome.__class__ is Failure and outcome.shortage is not None:
            return self._relief.relieve(requests, outcome, self._attempt)
        return outcome

    def _attempt(self, requests):
        """The same, and what failed for want of memory is neither logged nor relieved."""
        try:
            return self._execute(requests)
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: a worker ends when its server says so
            take_answers(self._model.senders)
            self._model.forget_rescheduled(requests)
            return self._relief.failure(requests, error)

    def _encode(self, requests, responses):
        """One answer to each request.  The writer turns what is wrong with one response into that request's error."""
        answers = self._answers
        if responses.__class__ is Failure:
            for _ in requests:
                answers.append(self._writer.error(responses.code, responses.text))
            return
        foreign = self._foreign.open
        for at, response in enumerate(responses):
            request = requests[at]
            answers.append(self._write_foreign(request, response) if foreign else self._writer.write(request, response))

    def _write_foreign(self, request, response):
        """An answer that may be made of memory which was gone when it was read: then it is worth nothing."""
        written = self._writer.write(request, response)
        lost = request.lost() if request.windows else None
        if lost is None:
            return written
        if written[3]:
            self._outputs.put_back(written[3])
        return self._writer.error(ErrorCode.INTERNAL, lost)

    def _wrong(self, request, traceback, text):
        """One response is not as it must be: its request is told, and this is for the log."""
        self._trace([request.request_id()], traceback, text)

    def _show(self):
        """Put the batch's answers into the ring and let its leases go."""
        leases, unheld = self._leases, self._unheld
        if self._foreign.open:
            self._foreign.settle()
        retained = [count != unheld for count in _references(leases)]
        self._send(retained)
        if True in retained:
            for lease, held, ticket in zip(leases, retained, self._tickets):
                if held:
                    self._completions.release_when_gone(lease, ticket)
                else:
                    self._free.append(lease)
            del lease
        else:
            self._free += leases
        leases.clear()
        self._answers.clear()

    def _show_early(self):
        """The output arena is full in the middle of a batch: show what is encoded, or nothing comes back.

        Our own references to these requests cannot be told from the model's yet, so they count as retained, and the
        releases follow as soon as the batch is let go.  Requests that were refused have no lease, and no release.
        """
        count = len(self._answers)
        if not count:
            return
        held = min(count, len(self._leases))
        self._send([True] * held + [False] * (count - held))
        for lease, ticket in zip(self._leases[:held], self._tickets):
            self._completions.release_when_gone(lease, ticket)
        self._forget_shown(held)

    def _forget_shown(self, held):
        """What was shown before the rest of the batch was encoded; `held`: how many of its requests."""
        del self._leases[:held]
        self._tickets = self._tickets[held:]  # new lists: others may be looking through the old ones
        self._owed = self._owed[len(self._answers) :]
        self._answers.clear()

    def _send(self, retained):
        taken, start, end = self._times
        times = (taken, start, end, self._now())
        self._completions.send(self._answers, self._owed, retained, times, self._uncounted)
        self._uncounted = 0

    def _refuse(self, refused, taken_ns):
        """Answer requests that never reached the model."""
        self._times = (taken_ns, taken_ns, taken_ns)
        self._owed = [ticket for ticket, _, _ in refused]
        for _, code, reason in refused:
            self._answers.append(self._writer.error(code, reason))
        self._send([False] * len(self._answers))
        self._answers.clear()


def _references(objects):
    """How often each is referred to."""
    return [_refcount(item) for item in objects]
