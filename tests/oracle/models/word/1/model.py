"""DROW is WORD, backwards."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        words = [pb_utils.get_input_tensor_by_name(request, "WORD").as_numpy() for request in requests]
        return [self._answer(word) for word in words]

    def _answer(self, word):
        drow = np.array([w[::-1] for w in word.reshape(-1)], np.object_).reshape(word.shape)
        return pb_utils.InferenceResponse([pb_utils.Tensor("DROW", drow)])
