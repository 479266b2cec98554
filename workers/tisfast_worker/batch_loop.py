"""The loop of models with `execute_batch`: as Loop, but what the model may keep is a view of the whole batch."""

from tisfast_worker.batch_arrays import BatchCall
from tisfast_worker.loop import Loop, _references


class BatchLoop(Loop):
    """Serves one model instance that takes batches as arrays."""

    def __init__(self, model, run, plane, trace):
        """`run(inputs)`: the model's, dict to dict of arrays."""
        super().__init__(model, None, plane, trace)
        self._call = self._execute = BatchCall(model, run, self._new_lease)

    def _run_model(self, requests):
        try:
            return super()._run_model(requests)
        finally:
            self._call.copies = False

    def _attempt(self, requests):
        """Another attempt gets copies: what the model keeps of them needs no memory of the requests to stay."""
        outcome = super()._attempt(requests)
        self._call.copies = True
        return outcome

    def _new_lease(self):
        return self._lease_type.from_address(self._lease_at)

    def _show(self):
        """While the model keeps any part of the arrays, the input memory of all requests of the batch stays."""
        if self._call.lease is None:
            super()._show()
            return
        lease, self._call.lease = [self._call.lease], None
        held = _references(lease)[0] != self._unheld
        self._send([held] * len(self._answers))
        if held:
            for ticket in self._tickets:
                self._completions.release_when_gone(lease[0], ticket)
        self._free += self._leases
        self._leases.clear()
        self._answers.clear()

    def _show_early(self):
        """As Loop's; the releases follow when the arrays are gone."""
        if self._call.lease is None:
            super()._show_early()
            return
        shown = len(self._answers)
        if not shown:
            return
        self._send([True] * shown)
        for ticket in self._tickets[:shown]:
            self._completions.release_when_gone(self._call.lease, ticket)
        self._free += self._leases[:shown]
        self._forget_shown(shown)
