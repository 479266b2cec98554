"""Waits WAIT_MS milliseconds and says when it began and ended: with it one sees who executes beside whom."""

import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One of the two models that share the resource `licence`."""

    def execute(self, requests):
        """Seconds of the machine's clock, [began, ended], for each request."""
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TIMES", self._wait(request))]) for request in requests]

    def _wait(self, request):
        began = time.monotonic()
        time.sleep(float(pb_utils.get_input_tensor_by_name(request, "WAIT_MS").as_numpy()[0]) / 1000)
        return np.array([began, time.monotonic()])
