"""Sums up a request's numbers, one in each round: after each the request goes back into the queue."""

import numpy as np
import triton_python_backend_utils as pb_utils

KNOWN_MAX = 10000  # a client that left in between leaves an entry behind


class TritonPythonModel:
    """What is known of a request between its rounds is kept by its sequence id, which the server gives it."""

    def initialize(self, args):
        """No request is under way."""
        self.known = {}  # the oldest first

    def execute(self, requests):
        """One round: None for those that are to come again."""
        return [self._step(request) for request in requests]

    def _step(self, request):
        numbers = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().ravel()
        key = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.known[key] = (0, 0)
            if len(self.known) > KNOWN_MAX:
                del self.known[next(iter(self.known))]
        total, rounds = self.known[key]
        if rounds < len(numbers):
            self.known[key] = (total + int(numbers[rounds]), rounds + 1)
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        del self.known[key]
        values = {"SUM": total, "ROUNDS": rounds}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, np.array([[value]], np.int32)) for name, value in values.items()]
        )
