"""OUTPUT = INPUT squared, after a tenth of a second."""

import time

import triton_python_backend_utils as pb_utils

SECONDS = 0.1


class TritonPythonModel:
    """What a large model costs, without the model."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        time.sleep(SECONDS)
        values = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", values * values)])
