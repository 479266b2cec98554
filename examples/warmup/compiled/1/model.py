"""A model whose first execution for each length is slow, as one that is compiled when it first sees a shape."""

import time

import triton_python_backend_utils as pb_utils

COMPILE_SECONDS = 0.3


class TritonPythonModel:
    """Doubles a vector."""

    def initialize(self, args):
        """Nothing is compiled yet."""
        self._compiled = set()

    def execute(self, requests):
        """DOUBLE = 2 X."""
        return [self._double(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def _double(self, x):
        if x.shape not in self._compiled:
            time.sleep(COMPILE_SECONDS)
            self._compiled.add(x.shape)
        return pb_utils.InferenceResponse([pb_utils.Tensor("DOUBLE", 2 * x)])
