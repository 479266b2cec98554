"""OUT is IN, without batches."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """OUT is IN, without batches."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])
