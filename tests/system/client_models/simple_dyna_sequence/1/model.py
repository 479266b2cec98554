"""Adds one to the first number of a sequence, and the sequence's id to the last."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        number, start, end, name = (self._value(request, name) for name in ("INPUT", "START", "END", "CORRID"))
        total = number + start + (name if end else 0)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[total]], np.int32))])

    def _value(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
