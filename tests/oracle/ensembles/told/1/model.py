"""FACTS is what the model knows of its request, as JSON."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """FACTS is what the model knows of its request, as JSON."""

    def execute(self, requests):
        """One answer for each request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        facts = {
            "id": request.request_id(),
            "correlation": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters() or "{}"),
            "requested": sorted(request.requested_output_names()),
        }
        text = np.array([[json.dumps(facts).encode()]], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values), pb_utils.Tensor("FACTS", text)])
