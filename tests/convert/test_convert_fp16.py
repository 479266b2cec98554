"""FP16 that a CPU computes in FP32: what is infinite elsewhere is refused, and what is not is made."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from tests.convert.made_models import converted, network, save  # noqa: E402
from tests.system import onnx_models as made  # noqa: E402

X = np.random.default_rng(2).uniform(0.5, 1.5, (5, 8)).astype("f")
HALF = {"samples": {"x": X}, "targets": ["onnx"], "precisions": ["fp16"], "concurrency": (1,)}


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
    assert half.status == "wrong" and half.reason.startswith("numbers inside of it are beyond FP16, which holds 65504")
    assert "it is inf and not" in half.reason and half.reason.endswith("A CPU does not show that, as it computes in "
                                                                       "FP32; a GPU does")  # fmt: skip
    (small,) = converted(source, **{**HALF, "samples": {"x": X / 10}}).tries
    assert (small.status, small.reason) == ("ok", "")
    (judged,) = converted(source, **HALF, verify=lambda *_: True).tries
    assert judged.status == "ok"


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
    assert half.status == "wrong" and "beyond FP16" in half.reason


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


def test_fp16_of_what_has_no_fp32_is_not_made(tmp_path):
    nodes = [made.node("Mul", ["x", "k"], ["y"])]
    constants = [made.constant("k", np.float64(3))]
    whole = made.model(nodes, [("x", "FP64", ("n", 8))], [("y", "FP64", ("n", 8))], constants)
    (half,) = converted(save(tmp_path, "double.onnx", whole), **HALF).tries
    assert half.status == "failed" and half.reason.startswith("nothing of the graph is FP32")
