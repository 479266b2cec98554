"""OUT is IN, unless IN begins with 1 (an exception) or 2 (an error)."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUT is IN, unless IN begins with 1 (an exception) or 2 (an error)."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if values[0, 0] == 1:
            raise ValueError("boom")
        if values[0, 0] == 2:
            return pb_utils.InferenceResponse([], pb_utils.TritonError("no such", pb_utils.TritonError.NOT_FOUND))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])
