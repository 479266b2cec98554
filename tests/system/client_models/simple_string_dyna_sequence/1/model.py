"""Sums of sequences, several of them in turns."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self._sums = {}

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        number, start, end, name = (self._value(request, name) for name in ("INPUT", "START", "END", "CORRID"))
        total = (0 if start else self._sums[name]) + int(number)
        self._sums[name] = total
        if end:
            del self._sums[name]
            total += int(name)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.array([[total]], np.int32))])

    def _value(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
