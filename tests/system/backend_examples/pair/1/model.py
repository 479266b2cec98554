"""Adds and subtracts, in the types that its configuration says."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.types = [
            pb_utils.triton_string_to_numpy(pb_utils.get_output_config_by_name(config, name)["data_type"])
            for name in ("SUM", "DIFFERENCE")
        ]

    def execute(self, requests):
        responses = []
        for request in requests:
            left = pb_utils.get_input_tensor_by_name(request, "LEFT").as_numpy()
            right = pb_utils.get_input_tensor_by_name(request, "RIGHT").as_numpy()
            total = pb_utils.Tensor("SUM", (left + right).astype(self.types[0]))
            difference = pb_utils.Tensor("DIFFERENCE", (left - right).astype(self.types[1]))
            responses.append(pb_utils.InferenceResponse(output_tensors=[total, difference]))
        return responses

    def finalize(self):
        print("pair is done")
