"""Handwritten digits: all images of a batch go through the network in one call."""

import os

import numpy as np
import triton_python_backend_utils as pb_utils
from network import Network, features


class TritonPythonModel:
    """Weights are read once, when the instance starts."""

    def initialize(self, args):
        """args: where this model lies, which version of it, and its configuration."""
        folder = os.path.join(args["model_repository"], args["model_version"])
        self.network = Network(os.path.join(folder, "weights.npz"))

    def execute(self, requests):
        """A batch is a list of requests, each with one image or more: [n, height, width]."""
        inputs = [pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy() for request in requests]
        probabilities = self.network.probabilities(np.concatenate([features(images) for images in inputs]))
        ends = np.cumsum([len(images) for images in inputs])[:-1]
        return [self._answer(part) for part in np.split(probabilities, ends)]

    def _answer(self, probabilities):
        digits = probabilities.argmax(axis=1).astype(np.int32).reshape(-1, 1)
        outputs = [pb_utils.Tensor("DIGIT", digits), pb_utils.Tensor("PROBABILITIES", probabilities)]
        return pb_utils.InferenceResponse(output_tensors=outputs)
