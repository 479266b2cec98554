"""A program as users of PyTriton write it, for the real package and for ours.

    python pytriton_host.py PACKAGE PIPE HTTP GRPC METRICS MODEL[,MODEL]

PACKAGE: pytriton or tisfast.pytriton; PIPE: the descriptor that takes a line of JSON when the models can be asked, and
one for each order on stdin: `bind` (one more model), `stop`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

import numpy as np

FLOATS = 4
BATCH_MAX = 64


def main(package: str, pipe: str, *arguments: str) -> None:
    """Serve until there is nothing more to read, or `stop`."""
    ports, models = [int(each) for each in arguments[:3]], arguments[3].split(",")
    own = _Package(package)
    began = time.perf_counter()
    triton = own.server(*ports)
    for name in models:
        own.bind(triton, name)
    triton.run()
    _tell(int(pipe), time.perf_counter() - began)
    for number, line in enumerate(sys.stdin):
        began = time.perf_counter()
        if line.strip() == "stop":
            triton.stop()
            _tell(int(pipe), time.perf_counter() - began)
            return
        own.bind(triton, "add_sub", f"later_{number}")
        _tell(int(pipe), time.perf_counter() - began)


class _Package:
    """The names of one package, by the paths that they have in both."""

    def __init__(self, package: str) -> None:
        """Import it."""
        self._triton, self._model_config, decorators = (
            importlib.import_module(f"{package}.{name}") for name in ("triton", "model_config", "decorators")
        )
        self._callables = {"add_sub": decorators.batch(add), "identity_fp32": decorators.batch(identity)}

    def server(self, http: int, grpc: int, metrics: int) -> Any:
        """One that does not run yet.  Nothing is restricted, as perf_analyzer asks for statistics."""
        module = self._triton
        return module.Triton(
            config=module.TritonConfig(http_port=http, grpc_port=grpc, metrics_port=metrics),
            security_config=module.TritonSecurityConfig(restricted_endpoints=[]),
        )

    def bind(self, triton: Any, model: str, name: str = "") -> None:
        """model: add_sub or identity_fp32, by which the load generators know what to send."""
        shape = (FLOATS,) if model == "add_sub" else (-1,)
        inputs = ["INPUT0", "INPUT1"] if model == "add_sub" else ["INPUT0"]
        tensors = [self._model_config.Tensor(name=each, shape=shape, dtype=np.float32) for each in inputs]
        triton.bind(
            model_name=name or model,
            infer_func=self._callables[model],
            inputs=tensors,
            outputs=[self._model_config.Tensor(name="OUTPUT0", shape=shape, dtype=np.float32)],
            config=self._model_config.ModelConfig(max_batch_size=BATCH_MAX),
        )


def add(INPUT0: Any, INPUT1: Any) -> dict[str, Any]:  # noqa: N803 - names of the tensors
    """The sum."""
    return {"OUTPUT0": INPUT0 + INPUT1}


def identity(INPUT0: Any) -> dict[str, Any]:  # noqa: N803 - the name of the tensor
    """The same."""
    return {"OUTPUT0": INPUT0}


def _tell(pipe: int, seconds: float) -> None:
    os.write(pipe, json.dumps({"seconds": seconds}).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
