"""From pixels to probabilities, in numpy alone: cut the digit out, shrink it to 8 x 8, and run a small network.

The training script uses the same `features`, so that training and serving see the same thing.
"""

import numpy as np

SIDE = 8  # the network looks at SIDE x SIDE numbers
INK = 0.25  # share of the darkest pixel from which a pixel counts as ink


def features(images):
    """UINT8 images [n, height, width] to float32 [n, SIDE * SIDE]: the digit cut out, centred and shrunk."""
    return np.stack([_feature(image) for image in images])


def _feature(image):
    grey = image.astype(np.float32)
    darkest = grey.max(initial=0)
    if darkest == 0:
        return np.zeros(SIDE * SIDE, np.float32)
    square = _square(_cut(grey / darkest))
    shrink = _shares(len(square))
    return (shrink @ square @ shrink.T).reshape(-1)


def _cut(grey):
    """The smallest box around the ink."""
    rows, columns = (np.flatnonzero((grey > INK).any(axis=axis)) for axis in (1, 0))
    return grey[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _square(grey):
    """Paper added on both sides of the shorter dimension: a 1 stays thin."""
    height, width = grey.shape
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    return np.pad(grey, ((top, side - height - top), (left, side - width - left)))


def _shares(side):
    """[SIDE, side]: the share of each of `side` pixels in each of SIDE; every row sums to 1, so ink keeps its tone."""
    edges = np.arange(SIDE + 1) * side / SIDE
    pixels = np.arange(side)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return (np.clip(overlap, 0, None) * SIDE / side).astype(np.float32)


class Network:
    """Fully connected layers with rectifiers between them, and a softmax at the end."""

    def __init__(self, path):
        """Read the weights that examples/train_digits.py wrote."""
        with np.load(path) as arrays:
            count = len(arrays.files) // 2
            self.layers = [(arrays[f"weights{i}"], arrays[f"bias{i}"]) for i in range(count)]

    def probabilities(self, values):
        """Features [n, SIDE * SIDE] to float32 [n, 10]."""
        for weights, bias in self.layers[:-1]:
            values = np.maximum(values @ weights + bias, 0)
        weights, bias = self.layers[-1]
        scores = values @ weights + bias
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
