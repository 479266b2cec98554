"""A random linear layer of PyTorch in this process: python examples/pytriton/linear_random_torch.py 8000."""

import sys

import numpy as np
import torch

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import ModelConfig, Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])
torch.manual_seed(0)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYER = torch.nn.Linear(4, 2).to(DEVICE).eval()


@batch
def infer(x):
    """Arrays are views of the memory that the request came in."""
    with torch.inference_mode():
        return [LAYER(torch.from_numpy(x).to(DEVICE)).cpu().numpy()]


with Triton(config=TritonConfig(http_port=PORT, grpc_port=PORT + 1, metrics_port=PORT + 2)) as triton:
    triton.bind(
        "Linear",
        infer,
        inputs=[Tensor(name="x", dtype=np.float32, shape=(4,))],
        outputs=[Tensor(name="y", dtype=np.float32, shape=(2,))],
        config=ModelConfig(max_batch_size=16),
    )
    with ModelClient(f"http://localhost:{PORT}", "Linear") as client:
        print(np.round(client.infer_batch(np.eye(4, dtype=np.float32))["y"], 4).tolist())
