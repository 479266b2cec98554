"""OUTPUT0 = INPUT0, a hundred times."""

import triton_python_backend_utils as pb_utils

RESPONSES = 100


class TritonPythonModel:
    """Sends from execute."""

    def execute(self, requests):
        """Every request's responses, then its final flag."""
        for request in requests:
            self._answer(request)

    def _answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        sender = request.get_response_sender()
        for _ in range(RESPONSES):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", values)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
