"""A model without config.pbtxt: auto_complete_config says all of it."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "A", "data_type": "TYPE_INT64", "dims": [2]})
        config.add_input({"name": "B", "data_type": "TYPE_INT64", "dims": [2], "optional": True})
        config.add_output({"name": "TOTAL", "data_type": "TYPE_INT64", "dims": [1]})
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        return config

    def initialize(self, args):
        self.bias = int(args["model_version"]) - 1

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        total = sum(t.as_numpy().sum(axis=1, keepdims=True) for t in request.inputs())
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOTAL", total + self.bias)])
