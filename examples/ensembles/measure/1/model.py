"""CAPITALS and LENGTH of WORD."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Lengths are in characters, not in bytes."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        word = pb_utils.get_input_tensor_by_name(request, "WORD").as_numpy()[0].decode()
        outputs = [
            pb_utils.Tensor("CAPITALS", np.array([word.upper().encode()], np.object_)),
            pb_utils.Tensor("LENGTH", np.array([len(word)], np.int32)),
        ]
        return pb_utils.InferenceResponse(outputs)
