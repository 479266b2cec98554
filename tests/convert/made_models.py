"""Small ONNX files, and conversions that take a short time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.system import onnx_models as made
from tisfast.client import Client
from tisfast.convert import Conversion, Try, convert
from tisfast.local_server import LocalServer

SHORT: dict[str, Any] = {"seconds": 0.1, "concurrency": (1,), "max_batch_size": 4}
"""One short load of each format: few tests look at figures, and those give the loads themselves."""
LARGE = 1e6
"""More than FP16 holds."""


def network(folder: Path, name: str = "net.onnx") -> Path:
    random = np.random.default_rng(0)
    weights = {"w": (8, 16), "v": (16, 3)}
    constants = [made.constant(key, random.standard_normal(shape).astype("f") / 4) for key, shape in weights.items()]
    nodes = [
        made.node("MatMul", ["x", "w"], ["h"]),
        made.node("Relu", ["h"], ["a"]),
        made.node("MatMul", ["a", "v"], ["y"]),
    ]
    return save(folder, name, made.model(nodes, [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 3))], constants))


def too_large_for_fp16(folder: Path) -> Path:
    nodes = [made.node("Mul", ["x", "k"], ["y"])]
    graph = made.model(
        nodes, [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 8))], [made.constant("k", np.float32(LARGE))]
    )
    return save(folder, "large.onnx", graph)


def centred(folder: Path) -> Path:
    """Rows minus their mean: what a row is answered depends on the rows beside it."""
    nodes = [made.node("ReduceMean", ["x", "axes"], ["m"], keepdims=1), made.node("Sub", ["x", "m"], ["y"])]
    axes = made.constant("axes", np.array([0], np.int64))
    return save(folder, "centred.onnx", made.model(nodes, [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 8))], [axes]))


def scores(folder: Path, name: str, *factors: float) -> Path:
    """A thousand scores, one behind the other multiplied by each factor."""
    weights = made.constant("w", np.random.default_rng(0).standard_normal((8, 1000)).astype("f") / 16)
    nodes = [made.node("MatMul", ["x", "w"], ["h"]), made.node("Softmax", ["h"], ["y0"], axis=1)]
    for at in range(len(factors)):
        nodes.append(made.node("Mul", [f"y{at}", f"k{at}"], [f"y{at + 1}"]))
    constants = [made.constant(f"k{at}", np.float32(each)) for at, each in enumerate(factors)]
    last = f"y{len(factors)}"
    return save(
        folder, name, made.model(nodes, [("x", "FP32", ("n", 8))], [(last, "FP32", ("n", 1000))], [weights, *constants])
    )


def save(folder: Path, name: str, graph: Any) -> Path:
    path = folder / name
    path.write_bytes(graph.SerializeToString())
    return path


def converted(source: Any, **options: Any) -> Conversion:
    return convert(source, **{**SHORT, **options})


def by_name(found: Conversion) -> dict[str, Try]:
    return {each.name: each for each in found.tries}


def asked_of(repository: Path, name: str, sent: dict[str, Any]) -> Any:
    """What a server of this repository answers."""
    server = LocalServer([f"--model-repository={repository}", "--http-port=0", "--http-address=127.0.0.1",
                          "--allow-grpc=false", "--allow-metrics=false", "--log-info=false"])  # fmt: skip
    server.start()
    try:
        with Client(server.http_address) as client:
            return client.model(name).infer(sent)
    finally:
        server.stop()
