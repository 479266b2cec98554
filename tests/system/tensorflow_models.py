"""Models of TensorFlow, for the tests of its backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

DTYPES = {
    "BOOL": tf.bool, "UINT8": tf.uint8, "UINT16": tf.uint16, "UINT32": tf.uint32, "UINT64": tf.uint64, "INT8": tf.int8,
    "INT16": tf.int16, "INT32": tf.int32, "INT64": tf.int64, "FP16": tf.float16, "BF16": tf.bfloat16,
    "FP32": tf.float32, "FP64": tf.float64, "BYTES": tf.string,
}  # fmt: skip
Dims = Sequence[int | None] | None


def spec(name: str, dims: Dims, dtype: Any = tf.float32) -> tf.TensorSpec:
    return tf.TensorSpec(dims, dtype, name)


def save(folder: Path, function: Callable[..., Any], *specs: tf.TensorSpec, signatures: Mapping[str, str] = {}) -> Path:
    """A SavedModel of a function from tensors to a dictionary of tensors.

    signatures: names of more of them, by the name of the output that they have alone.
    """
    module = tf.Module()
    module.made = tf.function(function, input_signature=specs)
    found = {"serving_default": module.made.get_concrete_function()}
    for name, output in signatures.items():
        part = tf.function(lambda *given, output=output: {output: function(*given)[output]}, input_signature=specs)
        setattr(module, name, part)
        found[name] = part.get_concrete_function()
    folder.parent.mkdir(parents=True, exist_ok=True)
    tf.saved_model.save(module, str(folder), signatures=found)
    return folder


def dense(folder: Path, outputs: int = 2) -> Path:
    """y = x w + b with w and b in variables."""
    module = tf.Module()
    module.w, module.b = tf.Variable(tf.ones([4, outputs])), tf.Variable(tf.range(outputs, dtype=tf.float32))

    @tf.function(input_signature=[spec("x", [None, 4])])
    def made(x: Any) -> dict[str, Any]:
        return {"y": x @ module.w + module.b}

    module.made = made
    folder.parent.mkdir(parents=True, exist_ok=True)
    tf.saved_model.save(module, str(folder), signatures=made)
    return folder


def graph(folder: Path, inputs: Mapping[str, Any], outputs: Mapping[str, Any], **options: Any) -> Path:
    """A SavedModel as TensorFlow 1 writes it, of the graph that is the default: tensors by name."""
    v1 = tf.compat.v1
    folder.parent.mkdir(parents=True, exist_ok=True)
    with v1.Session() as session:
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.builder.SavedModelBuilder(str(folder))
        describe = v1.saved_model.build_tensor_info
        infos = [{name: describe(each) for name, each in side.items()} for side in (inputs, outputs)]
        signature = v1.saved_model.build_signature_def(*infos, "predict")
        name, tags = options.get("signature", "serving_default"), options.get("tags", ["serve"])
        builder.add_meta_graph_and_variables(session, tags, {name: signature}, main_op=v1.tables_initializer())
        builder.save(as_text=options.get("as_text", False))
    return folder


def frozen(path: Path) -> Path:
    """A GraphDef of TensorFlow 1: `sum` and `scaled` of the placeholders `a` and `b`."""
    with tf.Graph().as_default() as made:
        a, b = (tf.compat.v1.placeholder(tf.float32, [None, 4], name=name) for name in "ab")
        tf.identity(tf.add(a, b, name="sum") * tf.constant(2.0), name="scaled")
        tf.identity(a - b, name="difference")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(made.as_graph_def().SerializeToString())
    return path
