"""Stands in for Triton's `identity` backend: outputs are the inputs of the same number."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """parameters: execute_delay_ms, and instance_wise_delay_multiplier, by which later instances are slower."""

    def initialize(self, args):
        parameters = json.loads(args["model_config"]).get("parameters", {})

        def number(name):
            return float(parameters.get(name, {}).get("string_value", 0))

        self.seconds = number("execute_delay_ms") / 1000
        if int(args["model_instance_name"].rpartition("_")[2]) and number("instance_wise_delay_multiplier"):
            self.seconds *= number("instance_wise_delay_multiplier")

    def execute(self, requests):
        time.sleep(self.seconds)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        wanted = request.requested_output_names()
        arrays = {each.name().replace("INPUT", "OUTPUT"): each.as_numpy() for each in request.inputs()}
        absent = np.zeros_like(next(iter(arrays.values())))  # an output whose input is not there is zeros
        said = {"param0": "an example string parameter", "param1": 42, "param2": False}
        tensors = [pb_utils.Tensor(name, arrays.get(name, absent)) for name in wanted]
        return pb_utils.InferenceResponse(tensors, parameters=said)
