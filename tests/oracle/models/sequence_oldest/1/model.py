"""Answers each request with what was to be seen of all requests of its batch; takes as long as one of them asks for."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils

CONTROLS = ("START", "END", "READY", "CORRID")


class TritonPythonModel:
    def execute(self, requests):
        batch = json.dumps([self._seen(request) for request in requests]).encode()
        time.sleep(max(self._milliseconds(request) for request in requests) / 1000)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", np.array([[b"%d of %s" % (place, batch)]], object))])
            for place, _ in enumerate(requests)
        ]

    def _seen(self, request):
        controls = {}
        for name in CONTROLS:
            array = pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            controls[name] = [str(array.dtype), list(array.shape), array.ravel().tolist()]
        return [
            request.request_id(), request.correlation_id(), request.flags(), request.parameters(),
            sorted(request.requested_output_names()), sorted(tensor.name() for tensor in request.inputs()), controls,
        ]  # fmt: skip

    def _milliseconds(self, request):
        ready = pb_utils.get_input_tensor_by_name(request, "READY").as_numpy().item()
        return pb_utils.get_input_tensor_by_name(request, "MILLISECONDS").as_numpy().item() if ready else 0
