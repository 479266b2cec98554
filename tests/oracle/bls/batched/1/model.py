import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Identity, with batches."""

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "A").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", a)]) for a in inputs]
