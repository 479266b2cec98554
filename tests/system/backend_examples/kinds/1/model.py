"""Goes where its instance group says, and hands tensors over by DLPack, as models of torch and jax do."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        if args["model_instance_kind"] != "CPU" or args["model_instance_device_id"] != "0":
            raise pb_utils.TritonModelException(f"not for {args['model_instance_kind']}")

    def execute(self, requests):
        responses = []
        for request in requests:
            left = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "LEFT"))
            right = np.from_dlpack(pb_utils.get_input_tensor_by_name(request, "RIGHT"))
            tensors = [
                pb_utils.Tensor.from_dlpack("SUM", left + right),
                pb_utils.Tensor.from_dlpack("DIFFERENCE", (left - right).__dlpack__()),
            ]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
