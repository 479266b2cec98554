"""What is called right, by the real frameworks: outputs of several units, FP16's own, rows with NaN, several sizes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from tests.convert.made_models import centred, converted, save  # noqa: E402
from tests.system import onnx_models as made  # noqa: E402
from tisfast.convert.report import table  # noqa: E402

X = np.random.default_rng(1).standard_normal((5, 8), np.float32)
W = np.random.default_rng(0).standard_normal((8, 3)).astype("f") / 3
SHORT = {"samples": {"x": X}, "targets": ["onnx"], "concurrency": (1,)}


def of_three_columns(folder, name, second, **constants):
    nodes = [made.node("MatMul", ["x", "w"], ["h"]), second]
    constants = [made.constant(key, value) for key, value in {"w": W, **constants}.items()]
    return save(folder, name, made.model(nodes, [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 3))], constants))


def test_a_column_that_is_garbage_in_fp16_is_wrong(tmp_path):
    units = np.array([1000, 1e-8, 1e-4], "f")
    source = of_three_columns(tmp_path, "units.onnx", made.node("Mul", ["h", "k"], ["y"]), k=units)
    found = converted(source, **SHORT)
    single, half = found.tries
    assert (single.status, half.status, found.best) == ("ok", "wrong", single)
    assert ", 1] it is " in half.reason and half.max_relative > 0.5
    assert found.scales["y"][0] > 100 and 1e-9 < found.scales["y"][1] < 1e-7


def test_scores_of_a_softmax_have_one_scale(tmp_path):
    found = converted(of_three_columns(tmp_path, "few.onnx", made.node("Softmax", ["h"], ["y"], axis=1)), **SHORT)
    assert [(each.status, each.reason) for each in found.tries] == [("ok", "")] * 2 and len(found.scales["y"]) == 1


def test_an_output_that_is_fp16_in_the_source_is_told(tmp_path):
    nodes = [made.node("MatMul", ["x", "w"], ["h"]), made.node("Cast", ["h"], ["y"], to=10)]
    graph = made.model(nodes, [("x", "FP32", ("n", 8))], [("y", "FP16", ("n", 3))], [made.constant("w", W)])
    found = converted(save(tmp_path, "half.onnx", graph), **{**SHORT, "targets": ["openvino"], "precisions": ["fp32"]})
    assert [(each.status, each.reason) for each in found.tries] == [("ok", "")]
    assert "Note: output 'y' is FP16 in the source itself, so FP16's tolerances hold for it" in table(found)


def test_inputs_with_first_sizes_of_their_own_have_no_batch(tmp_path):
    nodes = [made.node("Transpose", ["b"], ["t"], perm=[1, 0]), made.node("MatMul", ["a", "t"], ["y"])]
    graph = made.model(nodes, [("a", "FP32", ("n", 8)), ("b", "FP32", ("m", 8))], [("y", "FP32", ("n", "m"))])
    found = converted(
        save(tmp_path, "pairs.onnx", graph), **{**SHORT, "samples": {"a": X, "b": X[:3]}, "precisions": ["fp32"]}
    )
    assert [(each.status, each.reason) for each in found.tries] == [("ok", "")] and not found.signature.batches


def test_equal_rows_with_nan_tell_nothing_of_batches(tmp_path):
    rows = np.ones((3, 8), "f")
    rows[:, 0] = np.nan
    found = converted(centred(tmp_path), **{**SHORT, "samples": {"x": rows}, "precisions": ["fp32"]})
    assert found.signature.mixes and "no two samples of one shape differ" in found.notes[0]
