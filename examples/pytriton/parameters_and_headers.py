"""Parameters and headers of requests: python examples/pytriton/parameters_and_headers.py 8000."""

import sys

import numpy as np

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])


def scale(requests):
    """Without a decorator a callable sees its requests."""
    results = []
    for request in requests:
        factor = int(request.parameters.get("header-factor", request.parameters.get("factor", 1)))
        results.append({"scaled": request["x"] * factor})
    return results


config = TritonConfig(
    http_port=PORT,
    grpc_port=PORT + 1,
    metrics_port=PORT + 2,
    http_header_forward_pattern="header-.*",
    grpc_header_forward_pattern="header-.*",
)
with Triton(config=config) as triton:
    tensor = {"shape": (2,), "dtype": np.float32}
    triton.bind("Scale", scale, inputs=[Tensor(name="x", **tensor)], outputs=[Tensor(name="scaled", **tensor)])
    x = np.array([1, 2], np.float32)
    for url in (f"http://localhost:{PORT}", f"grpc://localhost:{PORT + 1}"):
        with ModelClient(url, "Scale") as client:
            for more in ({}, {"parameters": {"factor": 2}}, {"headers": {"header-factor": "3"}}):
                print(client.infer_sample(x, **more)["scaled"].tolist())
