"""PID: the process id of this worker."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers every request with its own process id."""

    def execute(self, requests):
        """One answer for each request."""
        pid = np.array([os.getpid()], np.int64)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("PID", pid)]) for _ in requests]
