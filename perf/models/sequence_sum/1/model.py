"""The sum of a sequence's numbers so far, by the place that it has in the batch."""

import numpy as np
import triton_python_backend_utils as pb_utils

BITS = 0x7FFFFFFF
NOTHING = np.zeros((1, 1), np.int32)


class TritonPythonModel:
    def initialize(self, args):
        self.sums = [0] * 32

    def execute(self, requests):
        return [self.answer(place, request) for place, request in enumerate(requests)]

    def answer(self, place, request):
        if not self.value(request, "READY"):
            return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", NOTHING)])
        before = 0 if self.value(request, "START") else self.sums[place]
        self.sums[place] = before + self.value(request, "INPUT") & BITS  # perf_analyzer's numbers are large
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([[self.sums[place]]], np.int32))])

    def value(self, request, name):
        return int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0, 0])
