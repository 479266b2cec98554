"""Models of one program on the server of another: python examples/pytriton/remote_mode.py 8000.

Both are in this script, and know only the server's address of each other.
"""

import sys

import numpy as np

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonSecurityConfig

PORT = int(sys.argv[1])
URL = f"http://localhost:{PORT}"


@batch
def negate(x):
    """Minus x."""
    return [-x]


X = {"shape": (1,), "dtype": np.float32}
config = TritonConfig(http_port=PORT, grpc_port=PORT + 1, metrics_port=PORT + 2)
with Triton(config=config, security_config=TritonSecurityConfig(restricted_endpoints=[])) as server:
    with RemoteTriton(url=URL) as remote:
        remote.bind("Negate", negate, inputs=[Tensor(name="x", **X)], outputs=[Tensor(name="y", **X)])
        with ModelClient(URL, "Negate") as client:
            print(client.infer_sample(np.array([3], np.float32))["y"].tolist())
        print("remote:", remote.is_alive())
    print("server:", server.is_alive(), "remote:", remote.is_connected())
