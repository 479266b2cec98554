"""A model whose inputs may be left out, alone or all but one: python examples/pytriton/optional_inputs.py 8000."""

import sys

import numpy as np

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch, fill_optionals, group_by_keys
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

PORT = int(sys.argv[1])


@group_by_keys
@batch
def which(**inputs):
    """Requests with the same inputs come together."""
    rows = len(next(iter(inputs.values())))
    names = ",".join(sorted(inputs))
    return {"names": np.array([[names.encode()]] * rows)}


@fill_optionals(b=np.array([10], np.float32))
@batch
def add(a, b):
    """`b` is there in any case."""
    return {"sum": a + b}


A = Tensor(name="a", shape=(1,), dtype=np.float32, optional=True)
B = Tensor(name="b", shape=(1,), dtype=np.float32, optional=True)
with Triton(config=TritonConfig(http_port=PORT, grpc_port=PORT + 1, metrics_port=PORT + 2)) as triton:
    triton.bind("Which", which, inputs=[A, B], outputs=[Tensor(name="names", shape=(1,), dtype=bytes)])
    required = Tensor(name="a", shape=(1,), dtype=np.float32)
    triton.bind("Add", add, inputs=[required, B], outputs=[Tensor(name="sum", shape=(1,), dtype=np.float32)])
    one = np.array([1], np.float32)
    with ModelClient(f"http://localhost:{PORT}", "Which") as client:
        for inputs in ({"a": one}, {"b": one}, {"a": one, "b": one}):
            print(sorted(inputs), client.infer_sample(**inputs)["names"].tolist())
    with ModelClient(f"http://localhost:{PORT}", "Add") as client:
        print(client.infer_sample(a=one)["sum"].tolist(), client.infer_sample(a=one, b=one)["sum"].tolist())
