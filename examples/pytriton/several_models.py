"""Objects as models, one model with two instances: python examples/pytriton/several_models.py 8000."""

import sys

import numpy as np

from tisfast.pytriton.client import FuturesModelClient, ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])


class Multiply:
    """Multiplies by a number of its own."""

    def __init__(self, factor):
        self.factor = factor

    @batch
    def __call__(self, x):
        """One array in, a list of one array out."""
        return [x * self.factor]


X = Tensor(name="x", shape=(1,), dtype=np.float32)
Y = Tensor(name="y", shape=(1,), dtype=np.float32)
triton = Triton(config=TritonConfig(http_port=PORT, grpc_port=PORT + 1, metrics_port=PORT + 2))
triton.bind("Double", Multiply(2), inputs=[X], outputs=[Y])
triton.bind("Triple", [Multiply(3), Multiply(3)], inputs=[X], outputs=[Y])
triton.run()
for name in ("Double", "Triple"):
    with ModelClient(f"http://localhost:{PORT}", name) as client:
        print(name, client.infer_sample(np.array([5], np.float32))["y"].tolist())
with FuturesModelClient(f"http://localhost:{PORT}", "Triple") as client:
    futures = [client.infer_sample(np.array([number], np.float32)) for number in range(8)]
    print([float(future.result()["y"][0]) for future in futures])
triton.stop()
