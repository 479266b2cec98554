"""SavedModels as they are, in ONNX and for OpenVINO (make test-tensorflow)."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is in an environment of its own: make test-tensorflow")

import tensorflow as tf  # noqa: E402 - it is there

from tests.convert.made_models import LARGE, by_name, converted  # noqa: E402
from tests.system import tensorflow_models as made  # noqa: E402
from tisfast.convert.signature import Tensor  # noqa: E402
from tisfast.errors import BadRequest  # noqa: E402

X = np.random.default_rng(1).standard_normal((3, 8), np.float32)
SHORT = {"seconds": 0.1, "concurrency": (1,), "samples": {"x": X}, "allow_pickled": True}


def test_a_saved_model_is_made_in_all_formats(tmp_path):
    weights = tf.constant(np.random.default_rng(0).standard_normal((8, 3)).astype("f"))
    function = lambda x: {"y": tf.nn.relu(x @ weights), "z": tf.reduce_sum(x, 1)}  # noqa: E731
    source = made.save(tmp_path / "net", function, made.spec("x", [None, 8]))
    with pytest.raises(BadRequest, match="can run code when it is read"):
        converted(source, **{**SHORT, "allow_pickled": False})
    found = converted(source, **SHORT, output=tmp_path / "out")
    assert {each.name: (each.status, each.reason) for each in found.tries} == {
        name: ("ok", "") for name in ("savedmodel fp32", "onnx fp32", "onnx fp16", "openvino fp32", "openvino fp16")
    }
    assert found.signature.inputs == (Tensor("x", "FP32", (-1, 8)),)
    assert found.signature.outputs == (Tensor("y", "FP32", (-1, 3)), Tensor("z", "FP32", (-1,)))


def test_one_that_is_wrong_in_fp16_is_refused(tmp_path):
    source = made.save(tmp_path / "net", lambda x: {"y": x * LARGE}, made.spec("x", [None, 8]))
    tries = by_name(converted(source, **SHORT, targets=["onnx"]))
    assert [each.status for each in tries.values()] == ["ok", "wrong"]


def test_texts_and_one_shape_are_served(tmp_path):
    source = made.save(tmp_path / "texts", lambda x: {"y": tf.strings.upper(x)}, made.spec("x", [2], tf.string))
    found = converted(source, **{**SHORT, "samples": {"x": np.array(["a", "b"])}}, targets=["savedmodel"])
    assert by_name(found)["savedmodel fp32"].status == "ok" and found.max_batch_size == 0


def test_without_the_default_signature_it_is_refused(tmp_path):
    x = tf.compat.v1.Graph()
    with x.as_default():
        given = tf.compat.v1.placeholder(tf.float32, [None, 8], "x")
        made.graph(tmp_path / "old", {"x": given}, {"y": given * 2}, signature="other")
    with pytest.raises(BadRequest, match="has no signature 'serving_default', which would be served; it has other"):
        converted(tmp_path / "old", **SHORT)
