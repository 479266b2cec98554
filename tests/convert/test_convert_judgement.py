"""What is called right, by the real frameworks: outputs of several units, FP16's own, rows with NaN, several sizes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from tests.convert.made_models import by_name, centred, converted, save  # noqa: E402
from tests.system import onnx_models as made  # noqa: E402
from tisfast.convert.report import table  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402

X = np.random.default_rng(1).standard_normal((5, 8), np.float32)
W = np.random.default_rng(0).standard_normal((8, 3)).astype("f") / 3
SHORT = {"samples": {"x": X}, "targets": ["onnx"]}


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
    assert ", 1], where" in half.reason and half.max_relative > 0.5
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


def test_a_large_output_that_cancels_to_near_0_is_right(tmp_path):
    """Sums of 512 products of some 2000: two frameworks add them up in two orders."""
    random = np.random.default_rng(0)
    weights = made.constant("w", (random.standard_normal((512, 1000)) * 100).astype("f"))
    graph = made.model([made.node("MatMul", ["x", "w"], ["y"])], [("x", "FP32", ("n", 512))],
                       [("y", "FP32", ("n", 1000))], [weights])  # fmt: skip
    samples = {"x": random.standard_normal((40, 512)).astype("f")}
    asked = {**SHORT, "samples": samples, "targets": ["onnx", "openvino"]}
    found = converted(save(tmp_path, "large.onnx", graph), **asked)
    assert {each.name: (each.status, each.reason) for each in found.tries} == {
        name: ("ok", "") for name in ("onnx fp32", "onnx fp16", "openvino fp32", "openvino fp16")
    }
    assert found.signature.batches and not found.signature.mixes and found.scales["y"][0] > 2000
    assert by_name(found)["openvino fp32"].max_absolute > 1e-3


def test_a_small_column_beside_a_large_one_is_compared_in_fp32(tmp_path):
    """The source computes it in FP64; OpenVINO in FP32, where two numbers of 100 leave nothing but rounding."""
    weights = made.constant("w", np.array([[1000.0, 0], [0, 0.12345], [0, -0.12345]]))
    nodes = [made.node("Cast", ["x"], ["d"], to=11), made.node("MatMul", ["d", "w"], ["p"]),
             made.node("Cast", ["p"], ["y"], to=1)]  # fmt: skip
    graph = made.model(nodes, [("x", "FP32", ("n", 3))], [("y", "FP32", ("n", 2))], [weights])
    near = np.random.default_rng(0).uniform(100, 101, 16)
    samples = {"x": np.stack([near - 100, near, near - 3e-5], 1).astype("f")}
    found = converted(
        save(tmp_path, "lin.onnx", graph),
        **{**SHORT, "samples": samples, "targets": ["openvino"], "precisions": ["fp32"]},
    )
    (wrong,) = found.tries
    assert wrong.status == "wrong" and ", 1], where numbers are of size" in wrong.reason
    assert wrong.max_relative > 0.01 and wrong.differs_most == "'y' at [..., 1]"
    assert "--atol and --rtol allow larger differences" in table(found)


def test_samples_that_are_no_numbers_are_refused(tmp_path):
    for value in (np.nan, np.inf):
        with pytest.raises(BadRequest, match="answers NaN or infinity to all samples"):
            converted(centred(tmp_path), **{**SHORT, "samples": {"x": np.full((3, 8), value, "f")}})


def test_a_source_that_answers_otherwise_when_asked_again_is_refused(tmp_path):
    nodes = [made.node("RandomNormalLike", ["x"], ["r"]), made.node("Add", ["x", "r"], ["y"])]
    source = save(tmp_path, "noise.onnx", made.model(nodes, [("x", "FP32", ("n", 8))], [("y", "FP32", ("n", 8))]))
    with pytest.raises(BadRequest, match="does not answer the same to the same sample: .*It draws random numbers"):
        converted(source, **SHORT)
    found = converted(source, **SHORT, verify=lambda *_: True, precisions=["fp32"])
    assert [each.status for each in found.tries] == ["ok"]
