"""Identity of every data type: IN_T comes back as OUT_T, when it is there."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        pairs = [(t.name().replace("IN_", "OUT_"), t.as_numpy()) for t in request.inputs()]
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in pairs])
