"""The hot loop: take a batch from the submit ring, execute it, answer it.  One thread, no lock, log or copy of its own.

It holds three steps: a reader makes requests of the batch's slots, a runner has the model execute them, and a publisher
answers them.  Which ones it holds depends on the model (loop_steps.py).
"""

import threading
import time

from tisfast_worker import limits
from tisfast_worker.batch_source import FOR_EVER
from tisfast_worker.call_record import CallArena
from tisfast_worker.cuda import DeviceLost
from tisfast_worker.execution import Execution
from tisfast_worker.serving_context import current

REST_NS = limits.REST_SECONDS * 1000000000


class Loop:
    """Serves one model instance, whose requests are answered when their execution is done."""

    def __init__(self, source, plane, reader, runner, publisher, deliver, pinned=None):  # noqa: PLR0913, PLR0917 - its parts
        """deliver(request, response): shows an answer while `execute` still runs; pinned: the PinnedMemory or None."""
        self.source, self._reader, self._runner = source, reader, runner
        self._publisher, self._deliver, self._pinned = publisher, deliver, pinned
        self._outputs, self._completions, self._foreign = plane.outputs, plane.completions, plane.foreign
        self._now = time.monotonic_ns
        self.thread = 0  # the loop's own
        self.execution = Execution(None, 0)  # the one that runs, or ran last

    @property
    def call_arena(self):
        """Where the calls are written that the model makes."""
        return CallArena(self._outputs, None)

    def run(self):
        """Until stop is set and the ring is empty."""
        self.thread = self._completions.loop_thread = threading.get_ident()
        try:
            self.source.run(self.serve, self._tidy)
        finally:
            if self._pinned is not None:
                self._pinned.end()

    def abandon(self):
        """The server has gone.  Here nothing waits for it."""

    def serve(self, slots):
        """One batch, from its slots to its answers."""
        taken_ns = self._now()
        execution = self.execution = Execution(self._deliver, taken_ns)
        self._outputs.collect_some()
        requests = self._reader.read(slots, execution)
        if requests:
            start_ns = self._now()
            execution.times = (taken_ns, start_ns, start_ns)
            responses = self._runner.run(requests, execution)
            execution.times = (taken_ns, start_ns, self._now())
            self._publisher.encode(requests, responses, execution)
            # From here on only user code can hold what the batch was made of.
            del requests, responses
            self._publisher.show(execution)
        if execution.refused:
            self._publisher.refuse(execution)
        if self._completions.behind_gpu:
            self._completions.settle_gpu()
        if self._foreign.unneeded:
            self._foreign.close_unneeded()
        self._look_for_gpu()

    def _look_for_gpu(self):
        """Without its GPU the process ends, when all is answered: the server starts another one."""
        lost = self._publisher.writer.device_lost or self._foreign.device_lost
        if lost is not None:
            raise DeviceLost(lost)

    def _tidy(self):
        nudged, settled = self._completions.take_nudge(), self._completions.settle_gpu()
        if nudged:  # it may have been in use until now; the server may have nudged, too
            self._foreign.rest(self.source.pending)
            self._look_for_gpu()
            return REST_NS
        if self._pinned is not None:
            self._pinned.rest()
            settled = settled and not self._pinned.stays
        self._outputs.rest(trims=self._pinned is None or not self._pinned.stays)
        self._completions.flush()
        calls = current().calls
        if calls is not None:
            calls.rest()
        self._foreign.rest(self.source.pending)
        self._look_for_gpu()
        # Garbage may have been collected meanwhile.
        return FOR_EVER if settled and not self._completions.behind_gpu else REST_NS
