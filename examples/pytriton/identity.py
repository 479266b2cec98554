"""Gives back numbers and texts, over HTTP and gRPC: python examples/pytriton/identity.py 8000."""

import sys

import numpy as np

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])


@batch
def identity(**inputs):
    """Outputs have the names of the inputs."""
    return inputs


TENSORS = [Tensor(name="numbers", shape=(-1,), dtype=np.int64), Tensor(name="text", shape=(1,), dtype=bytes)]
with Triton(config=TritonConfig(http_port=PORT, grpc_port=PORT + 1, metrics_port=PORT + 2)) as triton:
    triton.bind("Identity", identity, inputs=TENSORS, outputs=TENSORS)
    for url in (f"http://localhost:{PORT}", f"grpc://localhost:{PORT + 1}"):
        with ModelClient(url, "Identity") as client:
            result = client.infer_sample(numbers=np.arange(3), text=np.array(["süß".encode()]))
        print(result["numbers"].tolist(), [item.decode() for item in result["text"]])
