"""Train the `digits` model on scikit-learn's handwritten digits, which are scans of what 43 people wrote.

    pip install scikit-learn && python examples/train_digits.py

Writes the weights into the model's version folder, and the images that training never saw to digits_heldout.npz, for
digits_client.py.  Deterministic: the same versions of numpy and scikit-learn write the same weights.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

EXAMPLES = Path(__file__).resolve().parent
VERSION = EXAMPLES / "models" / "digits" / "1"
HELD_OUT_SHARE = 0.25
SEED = 7
SLOPES = (-0.3, -0.15, 0.15, 0.3)
ACCURACY_LEAST = 0.97

sys.path.insert(0, str(VERSION))
from network import Network, features  # noqa: E402  (the model's own code, beside its weights)


def scans() -> tuple[np.ndarray, np.ndarray]:
    """All scans as UINT8 [n, 8, 8] with 255 as full ink, and the digits they show."""
    data = load_digits()
    return np.round(data.images * (255 / 16)).astype(np.uint8), data.target.astype(np.int32)


def sheared(images: np.ndarray, slope: float) -> np.ndarray:
    """The scans three times as large and slanted, since people slant their digits: [n, 24, 48]."""
    large = images.repeat(3, axis=1).repeat(3, axis=2)
    slanted = np.zeros((len(large), 24, 48), np.uint8)
    for row in range(24):
        left = 12 + round(slope * (row - 12))
        slanted[:, row, left : left + 24] = large[:, row]
    return slanted


def train(images: np.ndarray, digits: np.ndarray) -> dict[str, np.ndarray]:
    """Weights and biases by name, as float32."""
    variants = [images, *(sheared(images, slope) for slope in SLOPES)]
    values = np.concatenate([features(each) for each in variants])
    network = MLPClassifier(hidden_layer_sizes=(128, 64), alpha=0.3, max_iter=400, random_state=SEED)
    network.fit(values, np.concatenate([digits] * len(variants)))
    pairs = enumerate(zip(network.coefs_, network.intercepts_, strict=True))
    named = {f"{name}{i}": array for i, pair in pairs for name, array in zip(("weights", "bias"), pair, strict=True)}
    return {name: array.astype(np.float32) for name, array in named.items()}


def main() -> int:
    """Train, write, and say how good it is on the held-out part."""
    images, digits = scans()
    seen, unseen, seen_digits, unseen_digits = train_test_split(
        images, digits, test_size=HELD_OUT_SHARE, random_state=SEED, stratify=digits
    )
    np.savez(VERSION / "weights.npz", **train(seen, seen_digits))
    np.savez_compressed(EXAMPLES / "digits_heldout.npz", images=unseen, digits=unseen_digits)
    answers = Network(VERSION / "weights.npz").probabilities(features(unseen)).argmax(axis=1)
    accuracy = float((answers == unseen_digits).mean())
    print(f"{accuracy:.1%} of {len(unseen)} held-out images are read correctly (trained on {len(seen)})")
    return 0 if accuracy >= ACCURACY_LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
