"""Sum and difference of two vectors: python examples/pytriton/add_sub.py 8000."""

import sys

import numpy as np

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import ModelConfig, Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])


@batch
def add_sub(a, b):
    """All requests of a batch come as one array for each input."""
    return {"add": a + b, "sub": a - b}


VECTOR = {"shape": (-1,), "dtype": np.float32}
with Triton(config=TritonConfig(http_port=PORT, grpc_port=PORT + 1, metrics_port=PORT + 2)) as triton:
    triton.bind(
        model_name="AddSub",
        infer_func=add_sub,
        inputs=[Tensor(name="a", **VECTOR), Tensor(name="b", **VECTOR)],
        outputs=[Tensor(name="add", **VECTOR), Tensor(name="sub", **VECTOR)],
        config=ModelConfig(max_batch_size=128),
        strict=True,
    )
    a = np.array([[1, 2], [3, 4]], np.float32)
    with ModelClient(f"http://localhost:{PORT}", "AddSub") as client:
        result = client.infer_batch(a, 2 * a)
    for name in ("add", "sub"):
        print(name, result[name].tolist())
