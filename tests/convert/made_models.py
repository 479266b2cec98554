"""Small ONNX files, and conversions that take a short time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.system import onnx_models as made
from tisfast.convert import Conversion, Try, convert

SHORT: dict[str, Any] = {"seconds": 0.1, "concurrency": (1, 2), "max_batch_size": 4}
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


def save(folder: Path, name: str, graph: Any) -> Path:
    path = folder / name
    path.write_bytes(graph.SerializeToString())
    return path


def converted(source: Any, **options: Any) -> Conversion:
    return convert(source, **{**SHORT, **options})


def by_name(found: Conversion) -> dict[str, Try]:
    return {each.name: each for each in found.tries}
