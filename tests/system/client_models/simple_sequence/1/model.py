"""Adds one to the first number of a sequence."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        number, start = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT", "START"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", number + start.reshape(number.shape))])
