"""T = M transposed: an output whose array is not contiguous."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        matrices = [pb_utils.get_input_tensor_by_name(request, "M").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("T", m.T)]) for m in matrices]
