"""Roots of numbers; a negative number fails its own request, and 13 raises for the whole batch."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        values = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        if any((v == 13).any() for v in values):
            raise ValueError("thirteen is not served")
        return [self._answer(v, len(requests)) for v in values]

    def _answer(self, value, together):
        if (value < 0).any():
            error = pb_utils.TritonError("no root of a negative number", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse([], error)
        count = np.full(value.shape, together, np.int32)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT0", np.sqrt(value)), pb_utils.Tensor("TOGETHER", count)]
        )
