"""Stands in for Triton's `sequence` backend: the output is the sum of a sequence's inputs."""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sums by correlation id; null requests, which fill slots, are not READY."""

    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.sums = {}
        delay = config.get("parameters", {}).get("execute_delay_ms", {}).get("string_value", 0)
        self.seconds = float(delay) / 1000

    def execute(self, requests):
        time.sleep(self.seconds)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        def control(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy().any()

        given = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
        total, sequence = 0, request.correlation_id()
        if control("READY"):
            total = given.sum() + (0 if control("START") else self.sums[sequence])
            self.sums[sequence] = total
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", np.full_like(given, total))])
