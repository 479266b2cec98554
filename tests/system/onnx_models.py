"""ONNX models for tests, made with the `onnx` package: small graphs by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the onnx package makes these models")

OPSET, IR = 21, 10
TYPES = {
    "BOOL": onnx.TensorProto.BOOL, "UINT8": onnx.TensorProto.UINT8, "UINT16": onnx.TensorProto.UINT16,
    "UINT32": onnx.TensorProto.UINT32, "UINT64": onnx.TensorProto.UINT64, "INT8": onnx.TensorProto.INT8,
    "INT16": onnx.TensorProto.INT16, "INT32": onnx.TensorProto.INT32, "INT64": onnx.TensorProto.INT64,
    "FP16": onnx.TensorProto.FLOAT16, "FP32": onnx.TensorProto.FLOAT, "FP64": onnx.TensorProto.DOUBLE,
    "BYTES": onnx.TensorProto.STRING, "BF16": onnx.TensorProto.BFLOAT16,
}  # fmt: skip
Value = tuple[str, str, Sequence[int | str]]


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, list(inputs), list(outputs), **attributes)


def constant(name: str, array: np.ndarray) -> Any:
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """A checked ModelProto.  inputs, outputs: (name, KServe's type, dims: numbers or names)."""
    graph = onnx.helper.make_graph(
        list(nodes), "test", [_value(*each) for each in inputs], [_value(*each) for each in outputs], list(constants)
    )
    opsets = [onnx.helper.make_opsetid("", options.get("opset", OPSET))]
    made = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=options.get("ir", IR))
    onnx.checker.check_model(made)
    return made


def _value(name: str, dtype: str, dims: Sequence[int | str]) -> Any:
    return onnx.helper.make_tensor_value_info(name, TYPES[dtype], list(dims))


def identity(dtype: str = "FP32", dims: Sequence[int | str] = ("n", "m")) -> Any:
    return model([node("Identity", ["X"], ["Y"])], [("X", dtype, dims)], [("Y", dtype, dims)])


def add_sub(dtype: str = "FP32", dims: Sequence[int | str] = ("n", 16)) -> Any:
    inputs = [(name, dtype, dims) for name in ("INPUT0", "INPUT1")]
    outputs = [(name, dtype, dims) for name in ("OUTPUT0", "OUTPUT1")]
    nodes = [node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]), node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"])]
    return model(nodes, inputs, outputs)


def save(made: Any, folder: Path, config: str = "", version: str = "1", file: str = "model.onnx") -> Path:
    """Write the model as a version of the model in `folder`."""
    (folder / version).mkdir(parents=True, exist_ok=True)
    (folder / version / file).write_bytes(made.SerializeToString())
    if config:
        (folder / "config.pbtxt").write_text(config)
    return folder


def accumulator(start: str = "INT32") -> Any:
    """A model of sequences: OUTPUT is the sum of what was sent since START, kept as state; WHO the sequence's id."""
    dims = ("n", 1)
    nodes = [
        node("Cast", ["START"], ["begins"], to=TYPES["BOOL"]),
        node("Where", ["begins", "zero", "SUM_IN"], ["before"]),
        node("Add", ["before", "INPUT"], ["OUTPUT"]),
        node("Identity", ["OUTPUT"], ["SUM_OUT"]),
        node("Identity", ["CORRID"], ["WHO"]),
        node("Cast", ["READY"], ["ROWS"], to=TYPES["INT32"]),
    ]
    inputs = [("INPUT", "FP32", dims), ("START", start, dims), ("READY", "BOOL", dims), ("CORRID", "UINT64", dims)]
    outputs = [("OUTPUT", "FP32", dims), ("SUM_OUT", "FP32", dims), ("WHO", "UINT64", dims), ("ROWS", "INT32", dims)]
    return model(nodes, [*inputs, ("SUM_IN", "FP32", dims)], outputs, [constant("zero", np.zeros((1, 1), np.float32))])


ACCUMULATOR = """
backend: "onnxruntime" max_batch_size: 4
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "WHO" data_type: TYPE_UINT64 dims: [ 1 ] },
         { name: "ROWS" data_type: TYPE_INT32 dims: [ 1 ] } ]
sequence_batching {
  STRATEGY
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
  state [ { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
}
"""
