"""A server with one model, asked by a client: the smallest program that proves an installation."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import ModelConfig, Tensor
from tisfast.pytriton.triton import Triton, TritonConfig

log = logging.getLogger("tisfast.pytriton.check")


@batch
def add_sub(a: Any, b: Any) -> dict[str, Any]:
    """Sum and difference."""
    return {"add": a + b, "sub": a - b}


def run() -> None:
    """Serve it on free ports and ask it over both protocols.  Raises AssertionError for a wrong answer."""
    vectors = [Tensor(name=name, shape=(-1,), dtype=np.float32) for name in ("a", "b", "add", "sub")]
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    with Triton(config=TritonConfig(http_port=0, grpc_port=0, metrics_port=0)) as triton:
        triton.bind("AddSub", add_sub, vectors[:2], vectors[2:], config=ModelConfig(max_batch_size=16), strict=True)
        for url in (f"http://{triton.http_address}", f"grpc://{triton.grpc_address}"):
            with ModelClient(url, "AddSub", init_timeout_s=60) as client:
                answer = client.infer_batch(a, b)
            if not (np.array_equal(answer["add"], a + b) and np.array_equal(answer["sub"], a - b)):
                raise AssertionError(f"{url} gave {answer} for {a} and {b}")
            log.info("%s answers as it should", url)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    run()
