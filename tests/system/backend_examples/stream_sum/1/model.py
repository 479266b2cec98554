"""Sums what a decoupled model answers, as numpy sums: in 64 bits, for an output of 32."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        (request,) = requests
        asked = pb_utils.InferenceRequest(
            model_name="squares",
            inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
            requested_output_names=["OUT"],
        )
        total = np.array([0])
        for answer in asked.exec(decoupled=True):
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            if len(answer.output_tensors()) > 0:
                total += pb_utils.get_output_tensor_by_name(answer, "OUT").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SUM", total)])]
