"""A model that learns while it answers, from handwritten digits: python examples/pytriton/online_learning.py 8000.

Two models share one object: what comes to `train` is known to `infer` at once.
"""

import sys
import threading

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import ModelConfig, Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])
ROWS = 64


class Digits:
    """A linear classifier, and what keeps its two callers apart."""

    def __init__(self):
        self.model = SGDClassifier(random_state=0)
        self.lock = threading.Lock()

    @batch
    def train(self, image, label):
        """Learn from a batch; gives how much of it was known before."""
        with self.lock:
            known = self.model.predict(image) if hasattr(self.model, "coef_") else np.full(len(image), -1)
            self.model.partial_fit(image, label[:, 0], classes=np.arange(10))
        return {"known": (known[:, None] == label).astype(np.float32)}

    @batch
    def infer(self, image):
        """The digits of a batch."""
        with self.lock:
            return {"label": self.model.predict(image)[:, None].astype(np.int64)}


images, labels = load_digits(return_X_y=True)
images, labels = images.astype(np.float32) / 16, labels.astype(np.int64)[:, None]
digits = Digits()
IMAGE = Tensor(name="image", shape=(64,), dtype=np.float32)
LABEL = Tensor(name="label", shape=(1,), dtype=np.int64)
KNOWN = Tensor(name="known", shape=(1,), dtype=np.float32)
SIZE = ModelConfig(max_batch_size=ROWS)
with Triton(config=TritonConfig(http_port=PORT, grpc_port=PORT + 1, metrics_port=PORT + 2)) as triton:
    triton.bind("Train", digits.train, inputs=[IMAGE, LABEL], outputs=[KNOWN], config=SIZE)
    triton.bind("Infer", digits.infer, inputs=[IMAGE], outputs=[LABEL], config=SIZE)
    url = f"http://localhost:{PORT}"
    with ModelClient(url, "Train") as train, ModelClient(url, "Infer") as infer:
        for start in range(0, 1280, ROWS):
            rows = slice(start, start + ROWS)
            known = train.infer_batch(images[rows], labels[rows])["known"].mean()
            if start % 320 == 0:
                print(f"after {start} images it knew {known:.2f} of the next {ROWS}")
        found = np.concatenate([infer.infer_batch(images[at : at + ROWS])["label"] for at in range(1280, 1792, ROWS)])
    print(f"of images that it never saw it knows {(found == labels[1280:1792]).mean():.2f}")
