"""Asks a decoupled model, and takes its responses as they come."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Adds up."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        count = pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()
        responses = pb_utils.InferenceRequest(
            model_name="count_down", requested_output_names=["LEFT"], inputs=[pb_utils.Tensor("COUNT", count)]
        ).exec(decoupled=True)
        total = 0
        for response in responses:
            if response.has_error():
                return pb_utils.InferenceResponse([], error=response.error())
            for tensor in response.output_tensors():  # the last response of a stream may have none
                total += int(tensor.as_numpy()[0])
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", np.array([total], np.int32))])
