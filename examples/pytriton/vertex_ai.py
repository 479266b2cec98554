"""A server for Vertex AI: python examples/pytriton/vertex_ai.py 8000.

Vertex AI asks one port. Give it these routes with the model: --container-health-route=/v2/health/ready and
--container-predict-route=/v2/models/Double/infer.
"""

import json
import sys
import urllib.request

import numpy as np

from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])
URL = f"http://localhost:{PORT}/v2"


@batch
def double(x):
    """Twice x."""
    return [2 * x]


X = {"shape": (2,), "dtype": np.float32}
config = TritonConfig(
    allow_http=False,
    allow_vertex_ai=True,
    vertex_ai_port=PORT,
    vertex_ai_default_model="Double",
    grpc_port=PORT + 1,
    metrics_port=PORT + 2,
)
triton = Triton(config=config)
triton.bind("Double", double, inputs=[Tensor(name="x", **X)], outputs=[Tensor(name="y", **X)])
triton.run()
body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
request = urllib.request.Request(
    f"{URL}/models/Double/infer", json.dumps(body).encode(), {"Content-Type": "application/json"}
)
with urllib.request.urlopen(f"{URL}/health/ready") as answer:
    print("healthy:", answer.status)
with urllib.request.urlopen(request) as answer:
    print(json.load(answer)["outputs"][0]["data"])
triton.stop()
