"""OUTPUT0 = INPUT0."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Returns the input's array as it came."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT0", values)])
