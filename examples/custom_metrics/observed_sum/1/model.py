"""Adds up each request's numbers, and keeps metrics of its own: shown on /metrics beside the server's."""

import json

import triton_python_backend_utils as pb_utils

SIZES = [1.0, 10.0, 100.0, 1000.0]


class TritonPythonModel:
    """Both instances write to the same metrics: equal names and labels are one number for the whole server."""

    def initialize(self, args):
        """Metrics live as long as their family, so both are kept."""
        family, labels = pb_utils.MetricFamily, {"model": args["model_name"], "version": args["model_version"]}
        self.requests = family("example_requests", "Requests, by outcome", family.COUNTER)
        self.done = self.requests.Metric(labels=dict(labels, outcome="done"))
        self.empty = self.requests.Metric(labels=dict(labels, outcome="empty"))
        self.sizes = family("example_elements", "Numbers in a request", family.HISTOGRAM)
        self.size = self.sizes.Metric(labels=labels, buckets=SIZES)
        self.sums = family("example_last_sum", "The sum that was computed last", family.GAUGE)
        self.last_sum = self.sums.Metric(labels=labels)
        maximum = json.loads(args["model_config"])["max_batch_size"]
        pb_utils.Logger.log_info(f"batches of at most {maximum}")

    def execute(self, requests):
        """One sum for each request."""
        responses = []
        for request in requests:
            numbers = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            self.size.observe(numbers.size)
            (self.done if numbers.size else self.empty).increment(1)
            total = numbers.sum(axis=1, keepdims=True)
            self.last_sum.set(total[0, 0])
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", total)]))
        return responses
