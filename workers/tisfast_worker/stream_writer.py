"""The way out for decoupled models: answers of all streams of an instance, from any thread, one at a time.

One lock orders what is not made for several threads: the output arena's book-keeping, the answer writer, and whether a
stream is closed.  Finalisers (a sender that was dropped) may run while it is held, and never take it.
"""

import threading
import time

from tisfast_worker import limits
from tisfast_worker.answer_record import AnswerWriter
from tisfast_worker.call_record import CallArena
from tisfast_worker.cuda import DeviceLost
from tisfast_worker.device_arena import DeviceArena
from tisfast_worker.errors import ErrorCode, TritonModelException
from tisfast_worker.native import TF_CLOSED, TF_EXECUTED, TF_FINAL, TF_RESCHEDULE, TF_RETAINED
from tisfast_worker.request import FLAG_CANCELLED
from tisfast_worker.response_sender import StreamSender
from tisfast_worker.send_lock import SendLock
from tisfast_worker.stream_backlog import StreamBlocks

_END = TF_FINAL | TF_RETAINED  # user code has the request or the sender in its hands: the release tells when not
_INTERNAL = ErrorCode.INTERNAL + 1


class StreamWriter:
    """Sends what the streams of one instance have to say."""

    def __init__(self, model, plane, trace, sequences):
        """For the decoupled model `model`; `trace(ids, traceback, error)` tells of a failure; `sequences`: or None."""
        self._model, self._completions, self._outputs = model, plane.completions, plane.outputs
        self._inputs = plane.inputs.memory
        self._owners = plane.outputs.owners = StreamBlocks(plane.outputs)
        self._trace = trace
        self._writer = AnswerWriter(model, self._owners, self._wrong)
        self._lock = SendLock()
        self._open = {}  # ticket: True, of streams not closed; a dict's single steps are atomic
        self._draining = None
        self._abandoned = False
        self._sequences = sequences

    @property
    def open_streams(self):
        """Requests that have not had their final answer."""
        return len(self._open)

    @property
    def call_arena(self):
        """Where calls are written: under the lock of the senders, which count whose answer lies in which block."""
        return CallArena(self._outputs, self._lock)

    @property
    def device_lost(self):
        """Why no answer can come from the GPU any more; else None."""
        return self._writer.device_lost

    def lend(self, library):
        """The DeviceArena of an instance on a GPU: of what the model sends, and of the calls that it makes."""

        def collect():
            with self._lock:
                self._outputs.collect()

        lent = DeviceArena(library, collect, self._writer, self._outputs.collect)
        self._owners.lent = self._writer.device_arena = lent
        return lent

    def open(self, request, ticket, taken_ns):
        """The sender of a request that was taken."""
        self._open[ticket] = True
        return StreamSender(self, request, ticket, taken_ns)

    def is_cancelled(self, at):
        """Whether the record whose flags lie at `at` says so; valid until the stream's final answer."""
        return self._inputs[at] & FLAG_CANCELLED != 0

    def send(self, sender, response, flags):
        """One answer of a stream, or its end; False when it is closed already.

        Waits, bounded, while the client of this stream leaves too much unread, or the output arena has no room for the
        answer.  Without the lock: others send meanwhile.
        """
        sent_ns = time.monotonic_ns()
        if self._completions.behind_gpu:
            self._settle_gpu()
        backlog = sender.backlog
        if backlog is not None and self._owners.must_wait(backlog):
            self._wait_for_reader(sender)
        with self._lock:
            if sender.closed:
                return False
            if response is None:
                self._end(sender, (TF_CLOSED, 0, 0, 0), sent_ns)
                return True
            if self._sequences is not None:
                wrong = self._sequences.keep(sender.states, response)
                if wrong:
                    self._wrong(sender, "", wrong)
            wanted = self._send(sender, response, flags, sent_ns)
        return not wanted or self._send_when_room(sender, response, flags, sent_ns, wanted)

    def _settle_gpu(self):
        """What other streams have let go of need not wait for the loop, which may execute for long."""
        try:
            self._completions.settle_gpu()
        except DeviceLost as error:
            self._writer.lose_device(error)

    def _send(self, sender, response, flags, sent_ns, *, last=False):
        """Under the lock.  0, or the bytes for which there was no room; last: that is told to the client."""
        self._outputs.collect_some()
        self._owners.wanted = 0
        written = self._writer.write(sender, response)
        if self._owners.wanted and not last:
            return self._owners.wanted
        if written[3]:
            sender.backlog = self._owners.add(written[3], sender.backlog)
        if flags:
            self._end(sender, written, sent_ns)
            return 0
        times = (sender.taken_ns, sender.started_ns, sent_ns, time.monotonic_ns())
        self._completions.put(written, sender.ticket, 0, times, 0)
        return 0

    def _send_when_room(self, sender, response, flags, sent_ns, wanted):
        """Wait for room, then send.  The server rings no bell for given blocks, so this looks, with growing pauses."""
        pause = limits.OUTPUT_WAIT_STEP_SECONDS_MAX / 50
        deadline = time.monotonic() + limits.OUTPUT_WAIT_SECONDS_MAX
        while wanted:
            time.sleep(pause)
            pause = min(2 * pause, limits.OUTPUT_WAIT_STEP_SECONDS_MAX)
            last = time.monotonic() > deadline
            with self._lock:
                if sender.closed:
                    return False
                if last or self._owners.hold(wanted):
                    wanted = self._send(sender, response, flags, sent_ns, last=last)
        return True

    def fail(self, sender, code, text):
        """End a stream with an error, unless it has ended."""
        with self._lock:
            if not sender.closed:
                self._end(sender, self._writer.error(code, text), time.monotonic_ns())

    def reschedule(self, sender):
        """The request wants to be executed again, and be answered then; unless it has had its final answer."""
        with self._lock:
            if sender.closed:
                return
            times = (sender.taken_ns, sender.started_ns, time.monotonic_ns(), time.monotonic_ns())
            self._completions.put((TF_RESCHEDULE, 0, 0, 0), sender.ticket, TF_RETAINED, times, 0)
            self._forget(sender)

    def refuse(self, ticket, code, text, taken_ns):
        """Answer a request that never reached the model."""
        with self._lock:
            times = (taken_ns, taken_ns, taken_ns, time.monotonic_ns())
            self._completions.put(self._writer.error(code, text), ticket, TF_FINAL, times, 0)

    def executed(self, ticket, requests, times):
        """`execute` has returned.  `ticket`: of its batch's first request."""
        with self._lock:
            self._completions.put((TF_EXECUTED, 0, 0, 0), ticket, 0, times, requests)

    def lost(self, sender):
        """This stream can not be answered any more.  Called by finalisers: takes no lock that it would wait for."""
        self._completions.post(TF_CLOSED, _END, _INTERNAL, sender.ticket)
        self._forget(sender)

    def rest(self):
        """The instance is idle."""
        with self._lock:
            self._outputs.rest()
        self._completions.flush()

    def drain(self):
        """Wait until all streams are closed.  Its bound is the server's: who does not stop in time is killed."""
        self._draining = threading.Event()
        if self._open and not self._abandoned:
            self._draining.wait()
        self._completions.flush()

    def abandon(self):
        """The server has gone: nobody waits for what the streams have to say."""
        self._abandoned = True
        if self._draining is not None:
            self._draining.set()

    def _end(self, sender, written, sent_ns):
        times = (sender.taken_ns, sender.started_ns, sent_ns, time.monotonic_ns())
        self._completions.put(written, sender.ticket, _END, times, 0)
        self._forget(sender)

    def _wrong(self, sender, traceback, text):
        """One response is not as it must be.  The request may be gone; its record lasts until the final answer."""
        raw = bytes(self._inputs[sender.id_at : sender.id_at + sender._head[6]])
        self._trace([raw.decode("utf-8", "replace")], traceback, text)

    def _forget(self, sender):
        sender.closed = True
        sender.output_places = None
        self._open.pop(sender.ticket, None)
        if self._draining is not None and not self._open:
            self._draining.set()

    def _wait_for_reader(self, sender):
        """Without the lock: one client that does not read must not stop the others' streams."""
        deadline = time.monotonic() + limits.OUTPUT_WAIT_SECONDS_MAX
        backlog = sender.backlog
        while not sender.closed:
            with self._lock:
                self._outputs.collect()
                if not self._owners.must_wait(backlog):
                    return
            if time.monotonic() > deadline:
                text = (
                    f"model '{self._model.name}': the client of this stream left {backlog} unread for "
                    f"{limits.OUTPUT_WAIT_SECONDS_MAX} s, so the stream ends here"
                )
                self.fail(sender, ErrorCode.UNAVAILABLE, text)
                raise TritonModelException(text)
            time.sleep(limits.OUTPUT_WAIT_STEP_SECONDS_MAX)
