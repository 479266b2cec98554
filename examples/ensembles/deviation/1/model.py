"""DEVIATION = std(X)."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One number for each vector."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("DEVIATION", x.std(keepdims=True))])
