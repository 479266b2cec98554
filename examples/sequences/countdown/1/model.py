"""Executes a request as often as it asks for; its answer says how many requests were in each of its batches."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Executes requests again and again."""

    def initialize(self, args):
        """Nothing has been seen."""
        self._seen = {}  # by correlation id: requests of each batch so far

    def execute(self, requests):
        """A response for those that are done, None for those that are to come again."""
        together = sum(1 for request in requests if request.correlation_id())  # the others fill gaps
        return [self._step(request, together) for request in requests]

    def _step(self, request, together):
        if not request.correlation_id():
            return pb_utils.InferenceResponse([])
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self._seen[request.correlation_id()] = []
        seen = self._seen[request.correlation_id()]
        seen.append(together)
        steps = pb_utils.get_input_tensor_by_name(request, "STEPS").as_numpy()
        if len(seen) < int(steps[0, 0]):
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        del self._seen[request.correlation_id()]
        return pb_utils.InferenceResponse([pb_utils.Tensor("BATCHES", np.array([seen], np.int32))])
