"""pb_utils.InferenceResponseSender, of decoupled models and of others.  Texts are Triton's."""

import threading

from tisfast_worker import arguments
from tisfast_worker.errors import TritonModelException
from tisfast_worker.response import InferenceResponse

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
_CLOSED = "Unable to send response. Response sender has been closed."


class InferenceResponseSender:
    """The face of senders for both kinds of model: `send`, from any thread, and `is_cancelled`.

    The name that models know, for isinstance; nobody is only that: the methods are those of the two kinds below.
    """

    __slots__ = ()

    def send(self, response=None, flags=0):
        """Answer the request; TRITONSERVER_RESPONSE_COMPLETE_FINAL in `flags` ends it, then without `response` too.

        Raises TritonModelException when the sender is closed or the arguments do not fit together, else TypeError.
        """
        raise NotImplementedError

    def is_cancelled(self):
        """Whether the client has left: what is sent from then on is dropped."""
        raise NotImplementedError


def check_arguments(response, flags):
    """Triton's rules for `send`."""
    if response is not None and not isinstance(response, InferenceResponse):
        raise arguments.wrong("send()", "response", "an InferenceResponse or None", response)
    flags = arguments.whole("send()", "flags", flags)
    if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
        raise TritonModelException("Unable to send response. Unsupported flag provided.")
    if response is None and flags == 0:
        raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")


class StreamSender(InferenceResponseSender):
    """The way back to one client of a decoupled model: any number of responses up to the final one.

    The request refers to it, and whoever asked for it.  When all of them have let go of one that was not closed, it
    ends in an error: nobody can answer any more.
    """

    __slots__ = (
        *("_cancelled_at", "_head", "_stream_writer", "batch", "closed", "id_at", "output_places", "started_ns"),
        *("states", "taken_ns", "ticket", "backlog"),
    )
    # For the answer writer: no input of a stream is passed by reference, it may be written to again.
    _lease, windows, devices = object(), None, None

    def __init__(self, stream_writer, request, ticket, taken_ns):
        """`request`: the ArenaRequest, not kept; `id_at`: of its id; `backlog`: of its answers, by the server;
        `output_places`: None once it is closed, as the client's memory is then its own.
        """
        self._stream_writer, self.ticket, self.taken_ns, self.started_ns = stream_writer, ticket, taken_ns, taken_ns
        self._head, self.batch, self._cancelled_at = request._head, request.batch, request.cancelled_at
        self.id_at, self.output_places = request._strings_at, request.output_places
        self.backlog = None
        self.closed = False

    def send(self, response=None, flags=0):
        """See InferenceResponseSender."""
        check_arguments(response, flags)
        if self.closed:
            raise TritonModelException(_CLOSED)
        if not self._stream_writer.send(self, response, flags):
            raise TritonModelException(_CLOSED)

    def is_cancelled(self):
        """Whether the client has left; False once the final response is sent."""
        return not self.closed and self._stream_writer.is_cancelled(self._cancelled_at)

    def __del__(self):
        """The request can not be answered any more."""
        if not self.closed:
            self._stream_writer.lost(self)


class SingleAnswer:
    """The answer to a request of a model that is not decoupled and asked for its sender."""

    __slots__ = ("_closed", "_deliver", "_lock", "done", "response")

    def __init__(self, deliver=None):
        """Nothing yet.  deliver(response): shows it to the client at once; None: it waits until `execute` is done.

        `done`: the final flag was sent, or nobody can send it any more.
        """
        self.response = None
        self.done = threading.Event()
        self._deliver, self._closed = deliver, False
        self._lock = threading.RLock()  # an element's __str__ may send while it is sent

    def give(self, response, final):
        """Take a response, which must be the first and come before the end.  Raises TritonModelException."""
        with self._lock:
            if response is not None and self.response is not None:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send more than one response."
                )
            if response is None and self.response is None:
                raise TritonModelException(
                    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
                )
            if self._closed or self.done.is_set():
                raise TritonModelException(_CLOSED)
            self.response = response or self.response
            if final:
                if self._deliver is not None:
                    self._deliver(self.response)
                self.done.set()

    def settle(self):
        """Close the sender: gives the response that was sent, or None."""
        with self._lock:
            self._closed, self._deliver = True, None
            return self.response


class SingleSender(InferenceResponseSender):
    """The sender of a request to a model that is not decoupled: exactly one response."""

    __slots__ = ("_answer", "_is_cancelled")

    def __init__(self, answer, is_cancelled):
        """`answer`: the SingleAnswer; `is_cancelled`: asks whether the client has left."""
        self._answer, self._is_cancelled = answer, is_cancelled

    def send(self, response=None, flags=0):
        """See InferenceResponseSender; a second response is refused."""
        check_arguments(response, flags)
        self._answer.give(response, flags)

    def is_cancelled(self):
        """Whether the client has left."""
        return self._is_cancelled()

    def __del__(self):
        """The request can not be answered any more."""
        self._answer.done.set()
