"""Callables that are bound without a server."""

import numpy as np

from tisfast.pytriton.decorators import CONTEXT_ATTRIBUTE, TritonContext
from tisfast.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from tisfast.pytriton.proxy.types import Request


def column(*values, dtype=np.float32):
    """An array of rows of one value."""
    return np.array([[value] for value in values], dtype=dtype)


def requests(*inputs):
    """A request of each dictionary of lists of values."""
    return [Request({name: column(*values) for name, values in each.items()}) for each in inputs]


def config(**fields):
    """Inputs a and b, which may be left out; outputs o and p."""
    given = {
        "model_name": "m",
        "inputs": [TensorSpec("a", (1,), np.float32), TensorSpec("b", (1,), np.float32, optional=True)],
        "outputs": [TensorSpec("o", (1,), np.float32), TensorSpec("p", (1,), np.float32)],
    }
    return TritonModelConfig(**(given | fields))


def bind(callable_, **fields):
    """As a server does."""
    context = TritonContext()
    context.model_configs[callable_] = config(**fields)
    setattr(getattr(callable_, "__self__", callable_), CONTEXT_ATTRIBUTE, context)
    return callable_


def values(results):
    """Arrays as lists of the values of their rows."""
    return [{name: array.ravel().tolist() for name, array in result.items()} for result in results]
