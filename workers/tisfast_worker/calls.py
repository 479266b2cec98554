"""Calls of other models from a model ("BLS"): InferenceRequest.exec and async_exec.

Bound to the process by instance.py while the model executes: not in initialize, not in finalize.
"""

import itertools
import threading
from contextvars import ContextVar

from tisfast_worker.call_record import ANY_NUMBER, NOBODY, WAITS, CallWriter
from tisfast_worker.device_calls import DeviceCalls
from tisfast_worker.errors import ErrorCode, TritonError
from tisfast_worker.native import TF_CALL, TF_CALL_CANCEL, TF_CALL_DONE, TF_FINAL
from tisfast_worker.output import OutputArenaFull
from tisfast_worker.replies import Replies, Waiting
from tisfast_worker.reply_record import ReplyReader
from tisfast_worker.response import InferenceResponse
from tisfast_worker.response_iterator import ResponseIterator
from tisfast_worker.serving_context import current

_NO_TIMES = (0, 0, 0, 0)
_ENDED = "this instance is served no more, so its call of another model has no answer"
PARENT = ContextVar("tisfast-parent", default=NOBODY)
"""Ticket of the request on whose behalf a coroutine of a decoupled model runs; in the loop's own thread it is known."""


class Calls:
    """The calls that one instance makes."""

    def __init__(self, plane, spin_ns, loop, announce):
        """loop: the Loop or StreamLoop; announce: tells the server, once, that this instance makes calls."""
        self._completions, self._loop, self._announce = plane.completions, loop, announce
        lent = plane.device_arena
        devices = None if lent is None else DeviceCalls(lent, plane.foreign.devices, self._ticket_of)
        self._writer = CallWriter(plane, loop.call_arena, self._ticket_of, devices)
        self._replies = Replies(plane, spin_ns, ReplyReader(plane, self._release).read, self._release_unread)
        self._numbers = itertools.count(1)
        self._once = threading.Lock()
        self._announced = False

    def ask(self, request, decoupled):
        """The response of another model; decoupled: an iterator of its responses.  Waits in this thread."""
        waiting = Waiting(next(self._numbers))
        refused = self._send(request, decoupled, waiting, threading.get_ident() == self._loop.thread)
        if decoupled:
            return ResponseIterator(self, waiting, refused)
        if refused is not None:
            return refused
        self._replies.wait(waiting)
        return waiting.arrived.popleft()

    def ask_async(self, request, decoupled, loop):
        """Call a model: gives an asyncio.Future of `loop`, which runs in this thread.

        decoupled: it is done with the first response, as Triton's, so that a plain `for` behind it, which stops the
        event loop, finds one.
        """
        future = loop.create_future()

        def on_news(refused=None):
            if future.done():
                return
            if decoupled:
                future.set_result(ResponseIterator(self, waiting, refused))  # hears the news from then on
            else:
                future.set_result(waiting.arrived.popleft() if refused is None else refused)

        waiting = Waiting(next(self._numbers), loop, on_news)
        refused = self._send(request, decoupled, waiting, threading.get_ident() == self._loop.thread)
        if refused is not None:
            on_news(refused)
        else:
            future.add_done_callback(lambda done: self.forget(waiting) if done.cancelled() else None)
        return future

    def trace_context(self, lease):
        """The OpenTelemetry context of the request that this lease is of, as JSON text; None when it is answered."""
        ticket = self._ticket_of(lease)
        return None if ticket is None else current().ask({"t": "context", "request": ticket})["context"]

    def close(self):
        """The instance ends before its process: its calls do, too."""
        self._replies.close(InferenceResponse([], TritonError(_ENDED, ErrorCode.UNAVAILABLE)))

    def rest(self):
        """The instance is idle."""
        self._replies.rest()

    def wait(self, waiting):
        """Until something has come for it, or it is over."""
        self.settle()
        self._replies.wait(waiting)

    def settle(self):
        """Before a wait: what was let go of makes room for what is waited for."""
        self._completions.settle_gpu()

    def cancel(self, waiting):
        """Ask the called model to stop; its answers still come."""
        if not waiting.final:
            self._completions.post(TF_CALL_CANCEL, 0, 0, waiting.number)

    def forget(self, waiting):
        """The answers that are still to come are not wanted.  For finalisers, too."""
        if self._replies.forget(waiting):
            self._completions.post(TF_CALL_CANCEL, TF_FINAL, 0, waiting.number)

    def _send(self, request, decoupled, waiting, waits):
        """Make the call; an error response when that cannot be done."""
        self._completions.settle_gpu()  # answers before it make room for this one's
        flags = (ANY_NUMBER if decoupled else 0) | (WAITS if waits else 0)
        parent = self._loop.execution.parent if waits else PARENT.get()
        lease = None if request._trace is None else request._trace.lease
        trace = None if lease is None else self._ticket_of(lease)
        if not self._announced:
            self._say_that_we_call()
        try:
            block, nbytes = self._writer.write(request, flags, parent, NOBODY if trace is None else trace)
        except OutputArenaFull as error:
            waiting.final = True
            return InferenceResponse([], TritonError(str(error), ErrorCode.UNAVAILABLE))
        self._replies.open(waiting)
        self._completions.put((TF_CALL, 0, nbytes, block), waiting.number, 0, _NO_TIMES, 0)
        return None

    def _ticket_of(self, lease):
        return self._loop.execution.ticket_of(lease)

    def _release(self, answer, on_gpu):
        """An answer's memory may go; on_gpu: when the GPU, where it lies, has done what is queued."""
        if on_gpu:
            self._completions.post_behind_gpu(TF_CALL_DONE, answer)
        else:
            self._completions.post(TF_CALL_DONE, 0, 0, answer)

    def _release_unread(self, answer):
        self._release(answer, False)

    def _say_that_we_call(self):
        with self._once:
            if not self._announced:
                self._announce()
                self._announced = True
