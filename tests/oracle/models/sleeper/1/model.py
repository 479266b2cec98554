"""Sleeps for MS milliseconds and gives MS back."""

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(pb_utils.get_input_tensor_by_name(request, "MS").as_numpy()) for request in requests]

    def _answer(self, ms):
        time.sleep(int(ms.flat[0]) / 1000)
        return pb_utils.InferenceResponse([pb_utils.Tensor("MS", ms)])
