"""OUT = MS, once, after so many milliseconds."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sends from execute."""

    def execute(self, requests):
        """One after the other."""
        for request in requests:
            self._answer(request)

    def _answer(self, request):
        length = pb_utils.get_input_tensor_by_name(request, "MS").as_numpy()
        time.sleep(int(np.sum(length)) / 1e3)
        sender = request.get_response_sender()
        sender.send(
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", length)]),
            flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
        )
