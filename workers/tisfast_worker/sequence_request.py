"""Requests of models with sequences: beside the client's inputs the model sees control and state tensors.

Those are no part of a record.  They are made when the model asks for them.
"""

from tisfast_worker.errors import TritonModelException
from tisfast_worker.foreign_request import ForeignRequest
from tisfast_worker.request import ArenaRequest, InferenceRequest
from tisfast_worker.response_sender import InferenceResponseSender, SingleAnswer, SingleSender, check_arguments
from tisfast_worker.tensor import zeros


class _Seated:
    """The part of a request that a slot of a sequence adds."""

    __slots__ = ()

    def sit(self, sequences, slot):
        """Before the model sees it.  `sequences`: the Sequences of the instance."""
        self.sequences, self.slot, self._made = sequences, slot, {}

    def find(self, name):
        """The input called `name`, or None."""
        maker = self.sequences.makers.get(name)
        if maker is None:
            return super().find(name)
        tensor = self._made.get(name)
        if tensor is None:
            tensor = self._made[name] = maker(self)
        return tensor

    def inputs(self):
        """Control and state tensors, then what the client sent, in the model's order."""
        return [self.find(name) for name in self.sequences.makers] + super().inputs()


class SequenceRequest(_Seated, ArenaRequest):
    """A request of a sequence."""

    __slots__ = ("_made", "sequences", "slot")


class ForeignSequenceRequest(_Seated, ForeignRequest):
    """A request of a sequence with inputs that lie elsewhere."""

    __slots__ = ("_made", "sequences", "slot")


class NullRequest(InferenceRequest):
    """Fills an empty slot of the direct strategy: shapes of a real request, zeros, READY false."""

    __slots__ = ("_decoupled", "_execution", "_made", "_plan", "_sender", "batch", "sequences")
    null = True

    def __init__(self, sequences, like, decoupled):
        """`like`: a real request of the same batch."""
        self.sequences, self._plan, self._made, self._decoupled = sequences, like._plan, {}, decoupled
        self._execution, self.batch = like._execution, like.batch
        self._id, self._correlation, self._flags, self._timeout = "", 0, 0, 0
        self._parameters, self._requested, self._sender = "", frozenset(), None

    def find(self, name):
        """The input called `name`, or None."""
        tensor = self._made.get(name)
        if tensor is not None:
            return tensor
        maker, at = self.sequences.makers.get(name), self._plan.position.get(name)
        if maker is None and at is None:
            return None
        tensor = self._made[name] = zeros(self._plan.layouts[at]) if maker is None else maker(self)
        return tensor

    def inputs(self):
        """The inputs, as a real request has them."""
        names = [*self.sequences.makers, *(layout.name for layout in self._plan.layouts)]
        return [self.find(name) for name in names]

    def get_response_sender(self):
        """A sender whose responses reach nobody."""
        if self._sender is None:
            if self._decoupled:
                self._sender = _NullSender()
            else:
                answer = SingleAnswer()
                self._execution.answer_by(self, answer)
                self._sender = SingleSender(answer, self.is_cancelled)
        return self._sender


class _NullSender(InferenceResponseSender):
    """Takes what a real one would."""

    __slots__ = ("_closed",)

    def __init__(self):
        self._closed = False

    def send(self, response=None, flags=0):
        """See InferenceResponseSender."""
        check_arguments(response, flags)
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        self._closed = flags != 0

    def is_cancelled(self):
        """A null request has no client that could leave."""
        return False
