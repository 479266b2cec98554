"""A backend of its own: multilayer perceptrons whose weights lie in `model.npz`, as W0, b0, W1, b1 and so on.

    tisfast serve --model-repository models --backend-directory examples/backends

serves every model of the repository whose config.pbtxt says `backend: "mlp"`, with nothing else in it.
"""

import os

import numpy as np

from tisfast.backend import ArrayBackend


class Backend(ArrayBackend):
    """One model: ReLU between its layers, nothing behind the last."""

    def load(self):
        """See ArrayBackend."""
        path = os.path.join(self.model.version_dir, self.model.file or "model.npz")
        with np.load(path, allow_pickle=False) as weights:
            self.layers = [(weights[f"W{i}"], weights[f"b{i}"]) for i in range(len(weights.files) // 2)]

    def describe(self):
        """See ArrayBackend."""
        inputs, outputs = self.layers[0][0].shape[0], self.layers[-1][0].shape[1]
        return {"inputs": [("X", "FP32", [-1, inputs])], "outputs": [("Y", "FP32", [-1, outputs])]}

    def execute_arrays(self, inputs):
        """See ArrayBackend."""
        values = inputs["X"]
        for at, (weights, bias) in enumerate(self.layers):
            values = values @ weights + bias
            if at + 1 < len(self.layers):
                values = np.maximum(values, 0, out=values)
        return {"Y": values}
