"""The ONNX project's backend test data, as the `onnx` package makes and carries it: models, inputs and outputs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the onnx package has the cases")

WIRE_TYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "BF16": "bfloat16", "FP32": "float",
    "FP64": "double", "BYTES": "string",
}  # fmt: skip
"""KServe's types, and ONNX Runtime's names of them."""
ON_DISK = ("simple", "pytorch-converted", "pytorch-operator")
LIGHT = "light"
"""Well-known networks whose weights are made when they run, each with its output for a known input."""


class Case(NamedTuple):
    """One model, and what it makes of some inputs, in the order of the model's; None: no such input.

    Values that are no arrays (sequences of tensors, optional ones) are whatever the package has.
    """

    name: str
    model: bytes
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Some 1,800, by name.  Takes some seconds: the package computes them."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the computations
        made = {each.name: each for each in _of_nodes(load_model_tests(kind="node"))}
    for kind in ON_DISK:
        made |= {each.name: each for each in _on_disk(load_model_tests(kind=kind))}
    made |= {each.name: each for each in _light(Path(onnx.__file__).parent / "backend/test/data" / LIGHT)}
    return tuple(made[name] for name in sorted(made))


def _of_nodes(tests: Any) -> Iterator[Case]:
    for each in tests:
        for inputs, outputs in each.data_sets[:1]:
            sides = [[_array(value) for value in side] for side in (inputs, outputs)]
            yield Case(each.name, each.model.SerializeToString(), *sides, each.rtol, each.atol)


def _on_disk(tests: Any) -> Iterator[Case]:
    for each in tests:
        folder = Path(each.model_dir)
        model, data = (folder / "model.onnx").read_bytes(), folder / "test_data_set_0"
        graph = onnx.load_from_string(model).graph
        sides = []
        for role, infos in (("input", graph.input), ("output", graph.output)):
            paths = [data / f"{role}_{at}.pb" for at in range(len(list(data.glob(f"{role}_*.pb"))))]
            sides.append([_read(path, info) for path, info in zip(paths, infos, strict=False)])
        yield Case(each.name, model, *sides, each.rtol, each.atol)


def _light(folder: Path) -> Iterator[Case]:
    from onnx.backend.test.runner import Runner

    for path in sorted(folder.glob("*.onnx")):
        graph = onnx.load(path).graph
        constants = {each.name for each in graph.initializer}
        given = [Runner.generate_dummy_data(each) for each in graph.input if each.name not in constants]
        told = [_read(folder / f"{path.stem}_output_{at}.pb", info) for at, info in enumerate(graph.output)]
        yield Case(path.stem, path.read_bytes(), given, told, 1e-3, 1e-7)


def _read(path: Path, info: Any) -> Any:
    tensor = onnx.TensorProto()
    if not info.type.HasField("tensor_type"):
        return info.type
    tensor.ParseFromString(path.read_bytes())
    return _array(tensor)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        texts = [text if isinstance(text, bytes) else str(text).encode() for text in value.ravel()]
        value = np.array(texts, object).reshape(value.shape)
    return value
