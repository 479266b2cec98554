"""OUTPUT0 = INPUT0, CALLS: how many requests were executed so far.  A first element of -1 fails."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.calls = 0

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        self.calls += 1
        values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        if len(values) and values[0] == -1:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("bad luck"))
        calls = np.array([self.calls], np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values), pb_utils.Tensor("CALLS", calls)])
