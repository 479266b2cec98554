"""Train a classifier of handwritten digits and serve it: python examples/functions/digits.py, then ask it.

curl -s localhost:8000/v2/models/Digits
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import tisfast

Pixels = Annotated[NDArray[np.float32], tisfast.Shape(64)]
Digit = Annotated[NDArray[np.int64], tisfast.Shape(1)]


class Digits:
    """Reads digits of 8 × 8 pixels from 0 to 16."""

    def setup(self) -> None:
        """Train on three quarters of the scans."""
        scans = load_digits()
        self._model = LogisticRegression(max_iter=1000).fit(scans.data[:1350] / 16, scans.target[:1350])

    def predict(self, pixels: Pixels) -> Digit:
        """One row for each scan."""
        return self._model.predict(pixels / 16)[:, None]


if __name__ == "__main__":
    tisfast.serve(Digits, batch=True, delay=0.001).wait()
