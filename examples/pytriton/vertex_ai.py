"""A server for Vertex AI: python examples/pytriton/vertex_ai.py 8000.

Vertex AI asks one port. Give it two routes with the model, such as --container-health-route=/health and
--container-predict-route=/predict: it tells the program in its environment, as this one does for itself elsewhere.
"""

import json
import os
import sys
import urllib.request

import numpy as np

from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])
HEALTH = os.environ.setdefault("AIP_HEALTH_ROUTE", "/health")
PREDICT = os.environ.setdefault("AIP_PREDICT_ROUTE", "/predict")


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
    f"http://localhost:{PORT}{PREDICT}", json.dumps(body).encode(), {"Content-Type": "application/json"}
)
with urllib.request.urlopen(f"http://localhost:{PORT}{HEALTH}") as answer:
    print("healthy:", answer.status)
with urllib.request.urlopen(request) as answer:
    print(json.load(answer)["outputs"][0]["data"])
triton.stop()
