"""Sum and difference of numbers that are written out."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        a, b = (self._numbers(request, name) for name in ("INPUT0", "INPUT1"))
        return pb_utils.InferenceResponse([self._words("OUTPUT0", a + b), self._words("OUTPUT1", a - b)])

    def _numbers(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy().astype(np.int32)

    def _words(self, name, numbers):
        words = [str(number).encode() for number in numbers.flatten()]
        return pb_utils.Tensor(name, np.array(words, object).reshape(numbers.shape))
