"""How dark and how bright an image is."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        bright = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().mean(axis=(1, 2, 3))
        scores = np.stack([1 - bright, bright], axis=1)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCORES", scores)])
