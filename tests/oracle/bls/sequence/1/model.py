import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """A running sum, and what it is told of the sequence."""

    def initialize(self, args):
        self.sum = 0

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        a, start, sequence = (
            int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0])
            for name in ("A", "START", "CORRID")
        )
        self.sum = a + (0 if start else self.sum)
        return pb_utils.InferenceResponse([pb_utils.Tensor("B", np.array([[self.sum, start, sequence]], np.int32))])
