"""Adds and subtracts, and counts on the server's metrics how long that took."""

import time

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.family = pb_utils.MetricFamily(
            name="pairs_busy_ns", description="Nanoseconds spent on pairs", kind=pb_utils.MetricFamily.COUNTER
        )
        self.busy = self.family.Metric(labels={"model": args["model_name"], "version": args["model_version"]})

    def execute(self, requests):
        began, responses = time.time_ns(), []
        for request in requests:
            left, right = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("LEFT", "RIGHT"))
            tensors = [pb_utils.Tensor("SUM", left + right), pb_utils.Tensor("DIFFERENCE", left - right)]
            responses.append(pb_utils.InferenceResponse(tensors))
        self.busy.increment(time.time_ns() - began)
        pb_utils.Logger.log_info(f"busy for {self.busy.value()} ns so far")
        return responses
