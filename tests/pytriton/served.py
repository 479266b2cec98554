"""A server on free ports, and models to bind."""

import numpy as np

from tisfast.pytriton.model_config import ModelConfig, Tensor
from tisfast.pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

A = Tensor(name="a", shape=(1,), dtype=np.float32)
B = Tensor(name="b", shape=(1,), dtype=np.float32, optional=True)
O = Tensor(name="o", shape=(1,), dtype=np.float32)  # noqa: E741
DECOUPLED = ModelConfig(decoupled=True)
ONE = np.array([1], np.float32)
TOKEN = "the-token"


def model(name, function, inputs=(A, B), outputs=(O,), **settings):
    """Arguments for `bind`."""
    return {"model_name": name, "infer_func": function, "inputs": inputs, "outputs": outputs, **settings}


def start(*models, workspace, security=None, **config):
    """A server that runs and has these models."""
    made = server(workspace=workspace, security=security or TritonSecurityConfig(access_token=TOKEN), **config)
    for each in models:
        made.bind(**each)
    made.run()
    return made


def server(*, workspace, security=None, **config):
    """One that does not run yet."""
    ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0}
    return Triton(config=TritonConfig(**{**ports, **config}), workspace=workspace, security_config=security)


def http(triton):
    """Its URL."""
    return f"http://{triton.http_address}"


def grpc(triton):
    """Its URL."""
    return f"grpc://{triton.grpc_address}"


def add(requests):
    return [{"o": sum(request.values())} for request in requests]


def count_up(requests):
    for number in range(3):
        yield [{"o": request["a"] + number} for request in requests]


def fail(requests):
    return 1 / 0


def fail_after_one(requests):
    yield [{"o": request["a"]} for request in requests]
    raise ValueError("after one")
