"""Sum and difference of a model that has no config.pbtxt: it says itself what it takes and gives."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for name in ("A", "B"):
            config.add_input({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        for name in ("SUM", "DIFFERENCE"):
            config.add_output({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(config, "SUM")
        self.dtype = pb_utils.triton_string_to_numpy(output["data_type"])

    def execute(self, requests):
        responses = []
        for request in requests:
            a, b = (tensor.as_numpy() for tensor in request.inputs())
            values = {"SUM": a + b, "DIFFERENCE": a - b}
            tensors = [pb_utils.Tensor(name, value.astype(self.dtype)) for name, value in values.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
