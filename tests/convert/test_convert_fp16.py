"""FP16 that a CPU computes in FP32: what is infinite elsewhere is refused, and what is not is made."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from tests.convert.made_models import converted, network, save, scores  # noqa: E402
from tests.system import onnx_models as made  # noqa: E402
from tisfast.convert import onnx_fp16  # noqa: E402
from tisfast.convert.references import FEEDS  # noqa: E402
from tisfast.convert.samples import Case, save_cases  # noqa: E402
from tisfast.convert.signature import Signature, Tensor  # noqa: E402

X = np.random.default_rng(2).uniform(0.5, 1.5, (5, 8)).astype("f")
HALF = {"samples": {"x": X}, "targets": ["onnx"], "precisions": ["fp16"]}


def graph(folder, *nodes, **constants):
    initializers = [made.constant(key, value) for key, value in constants.items()]
    return save(
        folder, "net.onnx", made.model(nodes, [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 8))], initializers)
    )


def test_a_number_inside_that_fp16_does_not_hold_is_refused(tmp_path):
    """(300 x)² / 10000: the square is some 90000, and the answer some 9."""
    source = graph(
        tmp_path,
        made.node("Mul", ["x", "k"], ["h"]),
        made.node("Mul", ["h", "h"], ["s"]),
        made.node("Div", ["s", "d"], ["y"]),
        k=np.float32(300),
        d=np.float32(1e4),
    )
    (half,) = converted(source, **HALF).tries
    assert half.status == "wrong" and half.reason.startswith("FP16 does not hold numbers inside of it (65504 at most")
    assert "it is inf and not" in half.reason and half.reason.endswith("A CPU does not show that, as it computes in "
                                                                       "FP32; a GPU does")  # fmt: skip
    (small,) = converted(source, **{**HALF, "samples": {"x": X / 10}}).tries
    assert (small.status, small.reason, small.note) == ("ok", "", "")
    (judged,) = converted(source, **HALF, verify=lambda *_: True).tries
    assert judged.status == "ok" and "not looked at, as `verify` judges" in judged.note


def test_a_number_inside_that_becomes_0_in_fp16_is_refused(tmp_path):
    source = graph(
        tmp_path,
        made.node("Mul", ["x", "k"], ["h"]),
        made.node("Mul", ["h", "k"], ["s"]),
        made.node("Div", ["s", "k"], ["t"]),
        made.node("Div", ["t", "k"], ["y"]),
        k=np.float32(1e-4),
    )
    (half,) = converted(source, **HALF).tries
    assert half.status == "wrong" and "FP16 does not hold" in half.reason


@pytest.mark.parametrize("mask", [-1e9, -3.4e38])
def test_a_mask_that_stands_for_infinity_is_right_in_fp16(tmp_path, mask):
    """Attention adds it to scores that shall be 0; FP16 has -65504 in its place."""
    row = np.where(np.arange(8) < 6, 0, mask).astype("f")
    source = graph(tmp_path, made.node("Add", ["x", "m"], ["h"]), made.node("Softmax", ["h"], ["y"], axis=1), m=row)
    (half,) = converted(source, **HALF).tries
    assert (half.status, half.reason) == ("ok", "")


def test_an_ordinary_network_is_made(tmp_path):
    (half,) = converted(network(tmp_path), **HALF).tries
    assert (half.status, half.reason) == ("ok", "")


@pytest.mark.parametrize(("size", "status"), [(1e5, "wrong"), (1e4, "ok")])
def test_inputs_are_held_in_fp16_too(tmp_path, size, status):
    source = graph(tmp_path, made.node("Mul", ["x", "k"], ["y"]), k=np.float32(1e-3))
    (half,) = converted(source, **{**HALF, "samples": {"x": size * X}}).tries
    assert half.status == status and ("it is inf and not" in half.reason) == (status == "wrong"), half.reason


@pytest.mark.parametrize(("size", "status"), [(4096, "wrong"), (4, "ok")])
def test_what_rounding_leaves_nothing_of_is_refused(tmp_path, size, status):
    """4096 + 0.9 is 4096 in FP16."""
    nodes = [made.node("Add", ["x", "k"], ["h"]), made.node("Sub", ["h", "k"], ["y"])]
    (half,) = converted(graph(tmp_path, *nodes, k=np.float32(size)), **HALF).tries
    assert half.status == status and ("it is 0 and not" in half.reason) == (status == "wrong"), half.reason


def inner(name, *nodes, inputs=(), outputs=()):
    values = {
        key: onnx.helper.make_tensor_value_info(key, getattr(onnx.TensorProto, kind), shape)
        for key, kind, shape in (*inputs, *outputs)
    }
    names = [[key for key, *_ in each] for each in (inputs, outputs)]
    return onnx.helper.make_graph(nodes, name, *([values[key] for key in each] for each in names))


def squares(value):
    """(k value)² / 10000, of values outside of the subgraph."""
    return [
        made.node("Mul", [value, "k"], ["h"]),
        made.node("Mul", ["h", "h"], ["s"]),
        made.node("Div", ["s", "d"], ["q"]),
    ]


def within_if():
    then = inner("then", *squares("x"), outputs=[("q", "FLOAT", ("n", 8))])
    other = inner("other", made.node("Identity", ["x"], ["same"]), outputs=[("same", "FLOAT", ("n", 8))])
    return [made.node("If", ["yes"], ["y"], then_branch=then, else_branch=other)]


def within_loop():
    nodes = [made.node("Identity", ["go"], ["on"]), *squares("v"), made.node("Sqrt", ["q"], ["w"])]
    inputs = [("i", "INT64", ()), ("go", "BOOL", ()), ("v", "FLOAT", ("n", 8))]
    body = inner("body", *nodes, inputs=inputs, outputs=[("on", "BOOL", ()), ("w", "FLOAT", ("n", 8))])
    return [made.node("Loop", ["times", "", "x"], ["y"], body=body)]


@pytest.mark.parametrize(
    ("nodes", "factor", "status"), [(within_if, 300, "wrong"), (within_loop, 300, "wrong"), (within_loop, 30, "ok")]
)
def test_numbers_of_subgraphs_are_held(tmp_path, nodes, factor, status):
    numbers = {"k": np.float32(factor), "d": np.float32(1e4), "yes": np.array(True), "times": np.array(2)}
    (half,) = converted(graph(tmp_path, *nodes(), **numbers), **HALF).tries
    assert half.status == status and ("FP16 does not hold" in half.reason) == (status == "wrong"), half.reason


def test_numbers_behind_operators_that_are_not_of_onnx_are_held(tmp_path):
    """ONNX infers no types there."""
    nodes = [onnx.helper.make_node("Gelu", ["x"], ["g"], domain="com.microsoft"), *squares("g")]
    whole = made.model([made.node("Identity", ["x"], ["q"])], [("x", "FP32", ("n", 8))], [("q", "FP32", ("n", 8))])
    del whole.graph.node[:]
    whole.graph.node.extend(nodes)
    whole.graph.initializer.extend([made.constant("k", np.float32(500)), made.constant("d", np.float32(1e4))])
    whole.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    (half,) = converted(save(tmp_path, "gelu.onnx", whole), **HALF).tries
    assert half.status == "wrong" and "FP16 does not hold" in half.reason


def test_a_thousand_scores_are_right_in_fp16(tmp_path):
    (half,) = converted(scores(tmp_path, "scores.onnx"), **HALF).tries
    assert (half.status, half.reason) == ("ok", "")


def random(*shape):
    return np.random.default_rng(len(shape) + shape[-1]).standard_normal(shape).astype("f") / shape[0] ** 0.5


def test_layers_of_a_network_are_right_in_fp16(tmp_path):
    """A perceptron 64-256-10 behind a LayerNorm, whose own sums are FP32 on a GPU, too: of numbers near 1000 here."""
    nodes = [
        made.node("LayerNormalization", ["x", "g", "z"], ["l"], axis=-1),
        made.node("MatMul", ["l", "w"], ["h"]),
        made.node("Add", ["h", "b"], ["c"]),
        made.node("Relu", ["c"], ["a"]),
        made.node("MatMul", ["a", "v"], ["y"]),
    ]
    weights = {
        "g": np.ones(64, "f"),
        "z": np.zeros(64, "f"),
        "w": random(64, 256),
        "b": random(256),
        "v": random(256, 10),
    }
    constants = [made.constant(key, value) for key, value in weights.items()]
    whole = made.model(nodes, [("x", "FP32", ("n", 64))], [("y", "FP32", ("n", 10))], constants)
    (half,) = converted(save(tmp_path, "layers.onnx", whole), **{**HALF, "samples": {"x": 8000 * random(20, 64)}}).tries
    assert (half.status, half.reason) == ("ok", "")


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_constant_of_no_dimensions_is_held_as_others(tmp_path, shape):
    """Exporters write them as nodes."""
    value = onnx.numpy_helper.from_array(np.full(shape, 0.5, "f"), "half")
    source = graph(tmp_path, made.node("Constant", [], ["k"], value=value), made.node("Mul", ["x", "k"], ["y"]))
    (half,) = converted(source, **HALF).tries
    assert (half.status, half.reason) == ("ok", "")


def test_attention_whose_mask_is_computed_is_right_in_fp16(tmp_path):
    """(1 - mask) * -3.4e38, as exporters of BERT write it."""
    nodes = [
        made.node("Sub", ["one", "mask"], ["without"]),
        made.node("Mul", ["without", "least"], ["added"]),
        made.node("Unsqueeze", ["added", "axis"], ["rows"]),
        made.node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        made.node("MatMul", ["q", "k"], ["s"]),
        made.node("Add", ["s", "rows"], ["m"]),
        made.node("Softmax", ["m"], ["p"], axis=-1),
        made.node("MatMul", ["p", "q"], ["y"]),
    ]
    numbers = {"one": np.float32(1), "least": np.float32(-3.4e38), "axis": np.array([1])}
    constants = [made.constant(key, value) for key, value in numbers.items()]
    inputs = [("q", "FP32", ("n", 6, 8)), ("mask", "FP32", ("n", 6))]
    source = save(tmp_path, "attention.onnx", made.model(nodes, inputs, [("y", "FP32", ("n", 6, 8))], constants))
    samples = {"q": random(5, 6, 8), "mask": np.tile(np.arange(6) < 4, (5, 1)).astype("f")}
    (half,) = converted(source, **{**HALF, "samples": samples}).tries
    assert (half.status, half.reason) == ("ok", "")


def told(folder, **more):
    """What the step says of a network: more is of its request."""
    signature = Signature((Tensor("x", "FP32", (-1, 8)),), (Tensor("y", "FP32", (-1, 3)),), True)
    save_cases(folder / FEEDS, [Case(f"sample {at}", {"x": X[at : at + 1]}) for at in range(len(X))])
    fixed = {"judged": False, "atol": None, "rtol": None, "signature": signature.document(), "reference": str(folder)}
    request = {**fixed, "cases": [f"sample {at}" for at in range(len(X))], "until": time.monotonic() + 3600, **more}
    return onnx_fp16.write_fp16(network(folder), folder / "half.onnx", request)


def test_samples_that_the_time_was_too_short_for_are_told(tmp_path):
    assert told(tmp_path) == {}
    said = told(tmp_path, until=time.monotonic())
    assert list(said) == [onnx_fp16.NOTE] and "looked at with 1 of 5 samples" in said[onnx_fp16.NOTE]


def test_what_is_not_looked_at_is_told(tmp_path, monkeypatch):
    other = Signature((Tensor("z", "FP32", (-1, 8)),), (Tensor("y", "FP32", (-1, 3)),), True)
    said = told(tmp_path, signature=other.document())[onnx_fp16.NOTE]
    assert "was not looked at, as its inputs (x) are not those of the samples" in said
    monkeypatch.setattr(onnx_fp16, "ONE_FILE_BYTES_MAX", 100)
    assert "was not looked at, as it is larger than" in told(tmp_path)[onnx_fp16.NOTE]


def test_fp16_of_an_old_graph_is_not_made(tmp_path):
    whole = made.model(
        [made.node("MatMul", ["x", "w"], ["y"])], [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 3))],
        [made.constant("w", random(8, 3))], opset=5,
    )  # fmt: skip
    (half,) = converted(save(tmp_path, "old.onnx", whole), **HALF).tries
    assert half.status == "failed" and half.reason.startswith("the graph is of opset 5, and FP16 of it needs 6")


def test_fp16_of_what_has_no_fp32_is_not_made(tmp_path):
    nodes = [made.node("Mul", ["x", "k"], ["y"])]
    constants = [made.constant("k", np.float64(3))]
    whole = made.model(nodes, [("x", "FP64", ("n", 8))], [("y", "FP64", ("n", 8))], constants)
    (half,) = converted(save(tmp_path, "double.onnx", whole), **HALF).tries
    assert half.status == "failed" and half.reason.startswith("nothing of the graph is FP32")
