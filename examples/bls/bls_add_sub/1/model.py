"""OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The whole contract of a Python model is `execute`; `initialize` and `finalize` are optional."""

    def execute(self, requests):
        """Answer each request, in order.  The arrays are views of the server's memory: nothing is copied."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
        outputs = [pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]
        return pb_utils.InferenceResponse(output_tensors=outputs)
