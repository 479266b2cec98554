"""FACTS: the request's id, parameters, timeout, correlation id, flags, inputs and requested outputs, as JSON."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        facts = {
            "id": request.request_id(),
            "parameters": json.loads(request.parameters() or "{}"),
            "timeout": request.timeout(),
            "correlation_id": request.correlation_id(),
            "flags": request.flags(),
            "requested": sorted(request.requested_output_names()),
            "inputs": [[t.name(), list(t.shape()), t.as_numpy().tolist()] for t in request.inputs()],
        }
        text = np.array([json.dumps(facts, sort_keys=True).encode()], np.object_)
        outputs = [pb_utils.Tensor("FACTS", text), pb_utils.Tensor("ZEROS", np.zeros(2, np.int32))]
        return pb_utils.InferenceResponse(outputs)
