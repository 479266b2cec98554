"""NDIM: how many dimensions the model sees."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        counts = [np.full(len(a), a.ndim, np.float32) for a in arrays]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("NDIM", count)]) for count in counts]
