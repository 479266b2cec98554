"""SUM is A and, where it is there, B; MORE is 10 A, where A begins with more than 0."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """SUM is A and, where it is there, B; MORE is 10 A, where A begins with more than 0."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
        b = pb_utils.get_input_tensor_by_name(request, "B")
        tensors = [pb_utils.Tensor("SUM", a + (0 if b is None else b.as_numpy()))]
        if a[0, 0] > 0:
            tensors.append(pb_utils.Tensor("MORE", a * 10))
        return pb_utils.InferenceResponse(tensors)
