"""Y = (X - MEAN) / DEVIATION."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Refuses to divide by 0."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        x, mean = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("X", "MEAN"))
        deviation = pb_utils.get_input_tensor_by_name(request, "DEVIATION")
        divisor = 1 if deviation is None else deviation.as_numpy()
        if divisor == 0:
            error = pb_utils.TritonError("all elements of X are equal", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse([], error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", (x - mean) / divisor)])
