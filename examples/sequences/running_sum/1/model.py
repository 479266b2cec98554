"""Adds the number that came to the sum that its sequence has so far."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sums of sequences."""

    def execute(self, requests):
        """A response to each."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        number, before = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("NUMBER", "SUM_BEFORE")
        )
        after = before + number
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", after), pb_utils.Tensor("SUM_AFTER", after)])
