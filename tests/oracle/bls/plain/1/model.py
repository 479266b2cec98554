import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Gives back what it gets, tells what it sees of the request, and fails on negative numbers."""

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        a = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
        first = a.ravel()[0] if a.size else 0
        if first == -1:
            raise ValueError("no luck")
        if first == -2:
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError("nothing", pb_utils.TritonError.NOT_FOUND))
        if first == -3:
            return pb_utils.InferenceResponse([pb_utils.Tensor("B", a)], parameters={"p": 7, "q": "r", "s": True})
        facts = {
            "id": request.request_id(),
            "correlation": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters()),
            "wanted": sorted(request.requested_output_names()),
            "inputs": [(tensor.name(), tensor.shape()) for tensor in request.inputs()],
        }
        said = np.array([json.dumps(facts, sort_keys=True).encode()], object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("B", a), pb_utils.Tensor("FACTS", said)])
