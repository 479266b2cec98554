"""SUM is A and B."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """SUM is A and B."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "AB")
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b)])
