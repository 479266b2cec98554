"""Sequences as one instance sees them: control tensors and implicit state.

The state of a sequence lives here, in the worker that the sequence is bound to, by its slot; nothing of it travels.
"""

from tisfast_worker import dtypes
from tisfast_worker.cuda import DeviceLost
from tisfast_worker.errors import ErrorCode, TritonError, TritonModelException
from tisfast_worker.native import TF_NULL
from tisfast_worker.request import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
)
from tisfast_worker.sequence_request import NullRequest
from tisfast_worker.sequence_state import InitialState, checked_state
from tisfast_worker.tensor import Tensor

_FLAGS, _TICKET, _SLOT = 1, 4, 8  # of an unpacked submit slot


class Sequences:
    """The sequences of one instance.  `makers`: functions of a request, by the names of the tensors that they make."""

    def __init__(self, model):
        """Reads the files of initial states.  Raises OSError."""
        self._model = model
        self._direct = model.sequences.direct
        self._by_output = {spec.output_name: at for at, spec in enumerate(model.sequences.states)}
        self._shown = {spec.name for spec in model.outputs} & set(self._by_output)  # outputs as well as state
        self._initial = [InitialState(spec, model.batched) for spec in model.sequences.states]
        self._states = {}  # by slot: a Tensor for each state
        shape = (1, 1) if model.batched else (1,)
        self.makers = {control[0]: _control(control, shape) for control in model.sequences.controls}
        for at, spec in enumerate(model.sequences.states):
            self.makers[spec.input_name] = self._state_maker(at)

    def seat(self, slots, requests, tickets):
        """Seat a batch and give the requests that the model sees: real ones, and null ones in empty slots of the direct
        strategy.

        slots: the batch's; requests: those that run, with their tickets.
        """
        running = dict(zip(tickets, requests))
        seen = []
        for slot in slots:
            request = None if slot[_FLAGS] & TF_NULL else running.get(slot[_TICKET])
            if request is not None:
                request.sit(self, slot[_SLOT])
                if request._flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                    self._states.pop(slot[_SLOT], None)
                seen.append(request)
            elif self._direct and requests:
                seen.append(NullRequest(self, requests[0], self._model.decoupled))
        return seen

    def states(self, slot):
        """The kept state of the sequence that has this slot now, for `keep`; None for none."""
        return self._of(slot) if self._by_output else None

    def keep(self, states, response):
        """Take the state out of a response; returns "".

        What does not fit the configuration makes the response an error, whose text is returned for the log.
        """
        if states is None or response._error is not None:
            return ""
        rest = []
        for tensor in response._tensors:
            at = self._by_output.get(tensor._name)
            if at is None or tensor._name in self._shown:
                rest.append(tensor)
            if at is None:
                continue
            try:
                states[at] = checked_state(self._model, self._model.sequences.states[at], states[at], tensor)
            except DeviceLost:
                raise  # nothing more can come of this process
            except (ValueError, TritonModelException) as error:
                response._error = TritonError(str(error), ErrorCode.INTERNAL)
                return str(error)
        response._tensors = rest
        return ""

    def leave(self, request):
        """Its answer is on the way: what a sequence that has ended kept is let go."""
        if request._flags & TRITONSERVER_REQUEST_FLAG_SEQUENCE_END:
            self._states.pop(request.slot, None)

    def _of(self, slot):
        states = self._states.get(slot)
        if states is None:
            states = self._states[slot] = [initial.make() for initial in self._initial]
        return states

    def _state_maker(self, at):
        def make(request):
            return self._initial[at].make() if request.null else self._of(request.slot)[at]

        return make


def _control(control, shape):
    name, kind, code, false, true = control
    if kind == "CORRID":
        return lambda request: Tensor(name, _correlation(code, request.correlation_id(), shape))
    flag = {
        "START": TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
        "END": TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
        "READY": None,
    }[kind]

    def make(request):
        said = not request.null if flag is None else request._flags & flag
        return Tensor(name, _filled(code, true if said else false, shape))

    return make


def _filled(code, value, shape):
    import numpy  # noqa: PLC0415 - as everywhere here: when a model asks for an array

    return numpy.full(shape, value, dtypes.TYPES[code][3])


def _correlation(code, value, shape):
    """The correlation id as an array: as in Triton, a number is cut to the width of the type."""
    import numpy  # noqa: PLC0415

    if code == dtypes.BYTES:
        array = numpy.empty(shape, object)
        array.fill(str(value).encode())
        return array
    if isinstance(value, str):
        raise TritonModelException(f"sequence id {value!r} is text, and the model's control input takes numbers")
    width = 8 * dtypes.TYPES[code][2]
    raw = (value & ((1 << width) - 1)).to_bytes(width // 8, "little")
    return numpy.frombuffer(bytearray(raw), dtypes.TYPES[code][3]).reshape(shape)
