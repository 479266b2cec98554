"""The loop of decoupled models: take a batch, start it, take the next.  Answers go out through the StreamWriter, any
time."""

import threading
import time

from tisfast_worker.batch_source import FOR_EVER
from tisfast_worker.cuda import DeviceLost
from tisfast_worker.errors import ErrorCode
from tisfast_worker.execution import Execution
from tisfast_worker.loop import REST_NS
from tisfast_worker.request import NOT_ITERATIVE
from tisfast_worker.response_sender import StreamSender
from tisfast_worker.serving_context import current


class StreamLoop:
    """Serves one decoupled model instance.  It holds the steps that Loop holds; a StreamWriter is the last one."""

    def __init__(self, model, source, plane, reader, runner, stream_writer):  # noqa: PLR0913, PLR0917 - what it is made of
        """See the class."""
        self._model, self._source, self._reader = model, source, reader
        self._runner, self._stream_writer = runner, stream_writer
        self._outputs, self._foreign, self._completions = plane.outputs, plane.foreign, plane.completions
        self._outputs.before_wait = _nothing  # every answer is shown when it is made
        self.thread = 0  # the loop's own
        self.execution = Execution(None, 0)  # the one that was started last

    @property
    def call_arena(self):
        """Where the calls are written that the model makes."""
        return self._stream_writer.call_arena

    def run(self):
        """Until stop is set, the ring is empty, and all streams have ended."""
        self.thread = self._completions.loop_thread = threading.get_ident()
        self._source.run(self.serve, self._tidy)
        self._stream_writer.drain()

    def abandon(self):
        """The server has gone: `run` waits for no stream."""
        self._stream_writer.abandon()

    def serve(self, slots):
        """One batch, from its slots to the return of `execute`."""
        taken_ns = time.monotonic_ns()
        execution = self.execution = Execution(None, taken_ns)
        requests = self._reader.read(slots, execution)
        for refused in execution.refused:
            self._stream_writer.refuse(*refused, taken_ns)
        start_ns = time.monotonic_ns()
        if requests:
            for request in requests:
                request._sender.started_ns = start_ns
            failure = self._runner.run(requests, execution)
            if failure is not None:
                self._end_all(requests, failure)
        end_ns = time.monotonic_ns()
        # Counted whether or not anything ran: the server waits for it before the next batch.
        self._stream_writer.executed(slots[0][4], len(requests), (taken_ns, start_ns, end_ns, end_ns))
        request = requests = None  # from here on only user code can hold what the batch was made of
        self._completions.settle_gpu()
        self._foreign.close_unneeded()
        self._look_for_gpu()

    def failed(self, requests, execution, error):
        """An execution raised after it had returned to us: a coroutine.  From any thread."""
        failure = self._runner.failed_later(requests, execution, error)
        del error
        self._end_all(requests, failure)

    def finished(self, execution):
        """All that an execution was to do is done: those that asked for another execution have it.  From any thread."""
        requests = execution.rescheduled
        execution.forget_rescheduled()
        for request in requests:
            if self._model.iterative:
                self._stream_writer.reschedule(request._sender)
            else:
                self._stream_writer.fail(request._sender, ErrorCode.INTERNAL, NOT_ITERATIVE)

    def _end_all(self, requests, failure):
        for request in requests:
            if request._sender.__class__ is StreamSender:  # what fills an empty slot of a sequence batch has none
                self._stream_writer.fail(request._sender, failure.code, failure.text)

    def _tidy(self):
        """See Loop; what finalisers of open streams leave behind is sent here."""
        nudged, settled = self._completions.take_nudge(), self._completions.settle_gpu()
        self._look_for_gpu()
        if nudged:
            self._foreign.rest(self._source.pending)
            self._look_for_gpu()
            return REST_NS
        self._stream_writer.rest()
        calls = current().calls
        if calls is not None:
            calls.rest()
        self._foreign.rest(self._source.pending)
        self._look_for_gpu()
        settled = settled and not self._completions.behind_gpu  # garbage may have been collected meanwhile
        return FOR_EVER if settled and not self._stream_writer.open_streams else REST_NS

    def _look_for_gpu(self):
        """Without its GPU the process ends: the server fails the streams that are open, and starts another one."""
        lost = self._stream_writer.device_lost or self._foreign.device_lost
        if lost is not None:
            raise DeviceLost(lost)


def _nothing():
    """There is nothing to show."""
