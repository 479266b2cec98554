"""pb_utils.InferenceRequest: made by hand in tests, or lying in the input arena when served."""

import functools
import struct

from tisfast_worker import arguments
from tisfast_worker import parameters as params
from tisfast_worker.errors import TritonModelException, not_copied
from tisfast_worker.response_sender import SingleAnswer, SingleSender
from tisfast_worker.serving_context import FORKED, current
from tisfast_worker.tensor import ArenaTensor, Tensor

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_GPU = 1
_NEEDED = object()
_REQUEST = "InferenceRequest"


FLAGS_AT, FLAG_CANCELLED, FLAG_TRACED = 6, 8, 32  # of a request record, WIRE.md
NOT_ITERATIVE = (
    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle "
    "such a flag."
)


class PreferredMemory:
    """Where a called model's outputs shall lie; without one, where that model has put them."""

    def __init__(self, preferred_memory_type, preferred_device_id=0):
        """TRITONSERVER_MEMORY_CPU or _GPU, and a device number."""
        self.preferred_memory_type, self.preferred_device_id = preferred_memory_type, preferred_device_id


class InferenceTrace:
    """The trace of a request; passed to a call, it makes that call part of it."""

    __slots__ = ("lease", "traced")

    def __init__(self, lease=None, traced=False):
        """lease: of the request's memory, by which it is known, None: of no request; traced: it has a context."""
        self.lease, self.traced = lease, traced

    def get_context(self):
        """The OpenTelemetry context as JSON text, or None when the request is not traced.  Asks the server for it."""
        calls = current().calls
        return calls.trace_context(self.lease) if self.traced and calls is not None else None


class InferenceRequest:
    """One request.  Arguments without names have the order of Triton's code, which is not that of its documents."""

    __slots__ = (
        *("__weakref__", "_correlation", "_flags", "_id", "_model_name", "_model_version", "_parameters", "_preferred"),
        *("_requested", "_tensors", "_timeout", "_trace"),
    )

    def __init__(  # noqa: PLR0913, PLR0917 - Triton's signature
        self,
        request_id="",
        correlation_id=0,
        inputs=_NEEDED,
        requested_output_names=_NEEDED,
        model_name=_NEEDED,
        model_version=-1,
        flags=0,
        timeout=0,
        preferred_memory=None,
        trace=None,
        parameters=None,
    ):
        """Raises TypeError or TritonModelException for arguments of wrong type."""
        _check_given(inputs=inputs, requested_output_names=requested_output_names, model_name=model_name)
        self._id = arguments.text(_REQUEST, "request_id", request_id)
        self._model_name = arguments.text(_REQUEST, "model_name", model_name)
        self._tensors = arguments.items(_REQUEST, "inputs", inputs)
        self._requested = frozenset(arguments.texts(_REQUEST, "requested_output_names", requested_output_names))
        self._model_version = arguments.whole(_REQUEST, "model_version", model_version)
        self._flags = arguments.whole(_REQUEST, "flags", flags)
        self._timeout = arguments.whole(_REQUEST, "timeout", timeout)
        self._correlation = _checked_correlation(correlation_id)
        _check_inputs(self._tensors, self._id, self._model_name)
        _expect("preferred_memory", preferred_memory, PreferredMemory)
        _expect("trace", trace, InferenceTrace)
        if not 0 <= self._timeout < 1 << 64:
            raise TypeError(f"{_REQUEST}: timeout is {self._timeout} microseconds; 0 to 2^64 - 1 is meant")
        if not -(1 << 63) <= self._model_version < 1 << 63:
            raise TypeError(f"{_REQUEST}: model_version is {self._model_version}; a number of 64 bits is meant")
        self._parameters = "" if parameters is None else params.text(parameters)
        self._trace, self._preferred = trace, preferred_memory

    def __reduce__(self):
        """Refused, as Triton refuses it: it belongs to this process."""
        raise not_copied(self)

    def inputs(self):
        """The input tensors that the client sent, in the model's order."""
        return list(self._tensors)

    def find(self, name):
        """The input called `name`, or None."""
        for tensor in self._tensors:
            if tensor.name() == name:
                return tensor
        return None

    def request_id(self):
        """The client's id, "" when it sent none."""
        return self._id

    def correlation_id(self):
        """The sequence's id, int or str; 0 for none."""
        return self._correlation

    def flags(self):
        """TRITONSERVER_REQUEST_FLAG_* bits."""
        return self._flags

    def set_flags(self, flags):
        """Replace the flags, for a request that is sent on."""
        self._flags = arguments.whole("set_flags()", "flags", flags)

    def timeout(self):
        """The client's timeout in microseconds, 0 for none."""
        return self._timeout

    def parameters(self):
        """Request parameters as JSON object text."""
        return self._parameters or "{}"

    def requested_output_names(self):
        """The outputs that the client asked for: all of them when it named none.  A set."""
        return set(self._requested)

    def is_cancelled(self):
        """Whether the client has left; of a request made by hand never."""
        return False

    def trace(self):
        """The request's trace."""
        return InferenceTrace()

    def set_release_flags(self, flags):
        """TRITONSERVER_REQUEST_RELEASE_ALL, the default, or TRITONSERVER_REQUEST_RELEASE_RESCHEDULE."""
        _checked_release(flags)

    def get_response_sender(self):
        """Refused: nobody waits for the answer to a request made by hand."""
        raise TritonModelException("get_response_sender(): only requests that `execute` was given have a sender")

    def exec(self, decoupled=False):
        """Ask the model: its InferenceResponse; decoupled: an iterator of its responses.  Waits in this thread.

        What goes wrong with the request is the response's error.  Raises TritonModelException outside of `execute`.
        """
        return _calls().ask(self, arguments.truth("exec()", "decoupled", decoupled))

    def async_exec(self, decoupled=False):
        """Call the model from a coroutine: gives an asyncio.Future of the response.  The request is under way when this
        returns.
        """
        import asyncio  # noqa: PLC0415 - 40 ms and 4 MB that only asynchronous models pay

        loop = asyncio.get_running_loop()
        return _calls().ask_async(self, arguments.truth("exec()", "decoupled", decoupled), loop)


class ArenaRequest(InferenceRequest):
    """A request as it lies in the input arena; what a model does not ask for is never decoded."""

    __slots__ = ("_execution", "_head", "_lease", "_plan", "_refs", "_sender", "_strings_at", "batch")
    null = False  # fills an empty slot: sequence_request.py
    windows = devices = output_places = None  # in memory that is not the input arena's: ForeignRequest's

    def __init__(self, plan, execution, lease, head, refs, strings_at):  # noqa: PLR0913, PLR0917 - all that a record has
        """`head`: the record's fixed part; `refs`: offset and bytes per input; `strings_at`: of id and text."""
        self._plan, self._execution, self._lease = plan, execution, lease
        self._head, self._refs, self._strings_at = head, refs, strings_at
        self._tensors = self._sender = None  # until somebody asks for one
        self._flags = head[2]
        self.batch = head[9]

    def flags(self):
        """TRITONSERVER_REQUEST_FLAG_* bits."""
        return self._flags & 3

    def find(self, name):
        """The input called `name`, or None."""
        at = self._plan.position.get(name)
        if at is None:
            return None
        tensors = self._tensors
        if tensors is None:
            tensors = self._tensors = list(self._plan.none)
        tensor = tensors[at]
        if tensor is None:
            refs = self._refs
            tensor = tensors[at] = ArenaTensor(self._plan.layouts[at], self._lease, refs[2 * at], refs[2 * at + 1])
        return tensor

    def inputs(self):
        """The input tensors that the client sent, in the model's order."""
        return [self.find(layout.name) for layout in self._plan.layouts]

    def request_id(self):
        """The client's id, "" when it sent none."""
        return self._text(0, self._head[6])

    def parameters(self):
        """Request parameters as JSON object text."""
        return self._text(self._head[6], self._head[7]) or "{}"

    def correlation_id(self):
        """The sequence's id, int or str; 0 for none."""
        if self._head[2] & 4:
            return self._text(self._head[6] + self._head[7], self._head[8])
        return self._head[5]

    def timeout(self):
        """The client's timeout in microseconds, 0 for none."""
        return self._head[4]

    def requested_output_names(self):
        """The outputs that the client asked for: all of them when it named none.  A set."""
        requested = self._head[3]
        return {name for i, name in enumerate(self._plan.output_names) if requested >> i & 1}

    @property
    def cancelled_at(self):
        """Where in the input arena the server notes that the client has left."""
        return self._strings_at - self._plan.strings_at + FLAGS_AT

    def is_cancelled(self):
        """Whether the client has left; the request runs on, and its answer is dropped."""
        return ord(self._lease[self.cancelled_at]) & FLAG_CANCELLED != 0

    def trace(self):
        """The request's trace."""
        return InferenceTrace(self._lease, self._flags & FLAG_TRACED != 0)

    def exec(self, decoupled=False):
        """Refused: it is being executed."""
        raise TritonModelException(
            "exec() of a request that `execute` was given: its own model would wait for itself; make an "
            "InferenceRequest of its tensors"
        )

    async_exec = exec

    def get_response_sender(self):
        """The sender that answers this request: always the same one."""
        if self._sender is None:  # no decoupled model: those have theirs from the start
            deliver = self._execution.deliver
            answer = SingleAnswer(None if deliver is None else functools.partial(deliver, self))
            self._execution.answer_by(self, answer)
            self._sender = SingleSender(answer, self.is_cancelled)
        return self._sender

    def set_release_flags(self, flags):
        """TRITONSERVER_REQUEST_RELEASE_RESCHEDULE: execute this request once more, in place of a response.

        For models with `iterative_sequence`.  `execute` returns None in the place of its response; a decoupled model
        sends no final one.  TRITONSERVER_REQUEST_RELEASE_ALL takes it back.
        """
        if getattr(self._sender, "closed", False):
            raise TritonModelException("set_release_flags(): this request has had its final response")
        self._execution.reschedule(self, _checked_release(flags))

    def _text(self, skip, nbytes):
        if not nbytes:
            return ""
        return struct.unpack_from(f"{nbytes}s", self._lease, self._strings_at + skip)[0].decode("utf-8", "replace")


def _checked_release(flags):
    """Check the flags: whether they ask for another execution."""
    flags = arguments.whole("set_release_flags()", "flags", flags)
    if flags not in (TRITONSERVER_REQUEST_RELEASE_ALL, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE):
        raise TritonModelException(
            f"set_release_flags({flags}): TRITONSERVER_REQUEST_RELEASE_ALL or TRITONSERVER_REQUEST_RELEASE_RESCHEDULE "
            "is meant"
        )
    return flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE


def _calls():
    serving = current()
    if serving.forked:
        raise TritonModelException(f"exec(): {FORKED}".format(serving.instance))
    if serving.calls is None:
        raise TritonModelException("BLS is only supported during the 'execute' function.")
    return serving.calls


def _check_given(**given):
    missing = [name for name, value in given.items() if value is _NEEDED]
    if missing:
        raise TypeError(f"{_REQUEST}: {', '.join(missing)} must be given")


def _expect(argument, value, kind):
    if value is not None and not isinstance(value, kind):
        raise arguments.wrong(_REQUEST, argument, f"a {kind.__name__}", value)


def _check_inputs(inputs, request_id, model_name):
    for tensor in inputs:
        if tensor is None:
            raise TritonModelException(
                f"Input tensor for request with id '{request_id}' and model name '{model_name}' should not be empty."
            )
        if not isinstance(tensor, Tensor):
            raise arguments.wrong(_REQUEST, "an item of inputs", "a Tensor", tensor)


def _checked_correlation(value):
    if value is None:
        raise arguments.wrong(_REQUEST, "correlation_id", "an integer or a str", value)
    if isinstance(value, str):
        return str(value)
    try:
        number = arguments.whole(_REQUEST, "correlation_id", value)
    except TypeError:
        raise TritonModelException("Correlation ID must be integer or string") from None
    if not 0 <= number < 1 << 64:
        raise TritonModelException(f"Correlation ID must be integer or string; {number} does not fit 64 bits unsigned")
    return number
