"""The loops of models with sequences: null requests, control tensors, implicit state, rescheduling around the others.

Other models' loops know nothing of all this.
"""

from tisfast_worker.loop import Loop
from tisfast_worker.native import TF_NULL, TF_RESCHEDULE
from tisfast_worker.relief import Failure
from tisfast_worker.sequences import Sequences
from tisfast_worker.stream_loop import StreamLoop

_RESCHEDULED = (TF_RESCHEDULE, 0, 0, 0)


class SequenceLoop(Loop):
    """Of a model that is not decoupled."""

    def __init__(self, model, backend, plane, trace):
        """As Loop's, with the Backend."""
        super().__init__(model, backend.execute, plane, trace)
        self._sequences = Sequences(model)
        self._seen = []  # what the model is to see of the batch at hand

    def _requests(self, slots):
        requests, tickets, refused = super()._requests(_real(slots))
        self._seen = self._sequences.seat(slots, requests, tickets)
        return requests, tickets, refused

    def _run_model(self, requests):
        """The responses of the real requests; None where one wants to be executed again."""
        seen, self._seen = self._seen, []
        responses = super()._run_model(seen)
        if responses.__class__ is Failure:
            return responses
        kept = []
        for request, response in zip(seen, responses):
            if request.null:
                continue
            if response is not None:
                wrong = self._sequences.keep(self._sequences.states(request.slot), response)
                if wrong:
                    self._wrong(request, "", wrong)
                self._sequences.leave(request)
            kept.append(response)
        return kept

    def _encode(self, requests, responses):
        if responses.__class__ is Failure or None not in responses:
            super()._encode(requests, responses)
            return
        for request, response in zip(requests, responses):
            if response is None:
                self._answers.append(_RESCHEDULED)
            else:
                super()._encode([request], [response])


class SequenceStreamLoop(StreamLoop):
    """Of a decoupled model."""

    def __init__(self, model, backend, plane, trace):
        """As StreamLoop's."""
        super().__init__(model, backend, plane, trace)
        self._sequences = self._outlet.sequences = Sequences(model)
        self._seen = []

    def _open(self, slots, taken_ns):
        requests = super()._open(_real(slots), taken_ns)
        self._seen = self._sequences.seat(slots, requests, [request._sender.ticket for request in requests])
        for request in requests:  # a stream may outlast its sequence, whose slot another one has then
            request._sender.states = self._sequences.states(request.slot)
        return requests

    def _run_model(self, requests):
        seen, self._seen = self._seen, []
        return super()._run_model(seen)

    def _failed(self, requests, error):
        super()._failed([request for request in requests if not request.null], error)


def _real(slots):
    return [slot for slot in slots if not slot[1] & TF_NULL]
