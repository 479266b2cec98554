"""OUTPUT0 = INPUT0, by way of another model, three times."""

import triton_python_backend_utils as pb_utils

CALLS = 3


class TritonPythonModel:
    """Asks bls_identity, and gives it what it said."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        for _ in range(CALLS):
            response = pb_utils.InferenceRequest(
                model_name="bls_identity",
                requested_output_names=["OUTPUT0"],
                inputs=[pb_utils.Tensor("INPUT0", values)],
            ).exec()
            if response.has_error():
                return pb_utils.InferenceResponse(output_tensors=[], error=response.error())
            values = pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUTPUT0", values)])
