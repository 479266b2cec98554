"""Adds up each sequence, by its slot, and says what its control inputs said."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self._one(slot, request) for slot, request in enumerate(requests)]

    def _one(self, slot, request):
        value, start, end, ready, corrid = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0, 0]
            for name in ("IN", "START", "END", "READY", "CORRID")
        )
        if ready:
            self.sums[slot] = int(value) + (0 if start else self.sums[slot])
        said = [start, end, ready, corrid, request.correlation_id(), request.flags(), len(request.inputs())]
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("OUT", np.array([[self.sums.get(slot, 0)]], np.int32)),
                pb_utils.Tensor("SAID", np.array([said], np.int64)),
            ]
        )
