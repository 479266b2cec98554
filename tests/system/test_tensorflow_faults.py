"""Models of TensorFlow that cannot be served, or not as they are asked: docs/tensorflow.md (make test-tensorflow)."""

from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

tf = pytest.importorskip("tensorflow", reason="TensorFlow is in an environment of its own: make test-tensorflow")

from tests.system import tensorflow_models as made  # noqa: E402 - what it needs is there
from tests.system.array_calls import UNREADY, infer, reason_of  # noqa: E402

TENSORFLOW = 'backend: "tensorflow"\n'
X, Y = (role + ' {{ name: "{}" data_type: TYPE_{} dims: [ {} ] }} ' for role in ("input", "output"))
BOTH = "max_batch_size: 8 " + X.format("x", "FP32", 4) + Y.format("y", "FP32", 2)


def said(**values):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{values[key]}" }} }}\n' for key in values)


def accelerator(kind, name):
    return f'optimization {{ execution_accelerators {{ {kind}_execution_accelerator: [ {{ name: "{name}" }} ] }} }}'


# By name: what is added to `backend: "tensorflow"` of a model y[n,2] = x[n,4] w + b, and words of the reason.
WRONG = {
    "signature": (said(TF_SIGNATURE_DEF="other"), "unable to load model 'signature', expected 'other' signature: '"),
    "tag": (said(TF_GRAPH_TAG="train"), "has the tag 'train' alone: it has serve; parameter TF_GRAPH_TAG names one"),
    "threads": (said(TF_NUM_INTRA_THREADS="-1"), "parameter 'TF_NUM_INTRA_THREADS' must be non-negative number for "
                "TensorFlow model 'threads'"),
    "no_number": (said(TF_NUM_INTER_THREADS="many"), "failed to convert 'many' to integral number"),
    "no_flag": (said(TF_USE_PER_SESSION_THREADS="maybe"), "failed to convert 'maybe' to boolean"),
    "share": (said(MAX_SESSION_SHARE_COUNT="0"), "parameter 'MAX_SESSION_SHARE_COUNT' must be positive number"),
    "no_file": (said(TF_INIT_OPS_FILE="no.json"), "no.json' of parameter TF_INIT_OPS_FILE of model 'no_file' cannot be "
                "read: No such file or directory"),
    "no_node": (said(TF_INIT_OPS_FILE="no_node.json"), "running the operations of TF_INIT_OPS_FILE"),
    "no_list": (said(TF_INIT_OPS_FILE="no_list.json"), 'has no list of names: write {"init_ops": ["NODE", ...]}'),
    "cpu": (accelerator("cpu", "openvino"), "CPU Execution Accelerator is not supported in TensorFlow backend"),
    "accelerator": (accelerator("gpu", "magic"), "unknown Execution Accelerator 'magic' is requested"),
    "library": ('model_operations { op_library_filename: [ "no.so" ] }', "error loading custom operations: "),
    "kind": ("instance_group [ { kind: KIND_GPU } ]", ""),
    "name": (BOTH.replace('"x"', '"z"'), "unexpected inference input 'z', allowed inputs are: x"),
    "one_more": (BOTH + X.format("z", "FP32", 1), "unexpected inference input 'z', allowed inputs are: x"),
    "output": (BOTH.replace('"y"', '"z"'), "unexpected inference output 'z', allowed outputs are: y"),
    "dtype": (BOTH.replace("FP32", "INT32", 1), "configuration expects datatype TYPE_INT32 for input 'x', model "
              "provides TYPE_FP32"),
    "dims": (BOTH.replace("[ 4 ]", "[ 5 ]"), "model 'dims', tensor 'x': the model expects 2 dimensions (shape [-1,4])"),
    "contradicting": (BOTH.replace("8", "0").replace("[ 4 ]", "[ -1, 4 ]"), "model tensor configurations are "
                      "contradicting each other in terms of whether batching is supported"),
    "control": (BOTH + "sequence_batching { control_input { name: 'c' control { kind: CONTROL_SEQUENCE_READY "
                "fp32_false_true: [ 0, 1 ] } } }", "configuration specified sequence control 'c', but model does not"),
    "platform": ("platform: 'tensorflow_graphdef' default_model_filename: 'model.savedmodel'", "is a folder; write "
                 'platform: "tensorflow_savedmodel"'),
}  # fmt: skip


def test_what_cannot_be_served_is_refused_with_a_sentence(serve, tmp_path, connect):
    models, words = tmp_path / "models", {name: reason for name, (_, reason) in WRONG.items()}
    original = made.dense(tmp_path / "original")
    for name, (config, _) in WRONG.items():
        shutil.copytree(original, models / name / "1/model.savedmodel")
        (models / name / "config.pbtxt").write_text(TENSORFLOW + config)
    (models / "no_node/no_node.json").write_text('{"init_ops": ["nobody"]}')
    (models / "no_list/no_list.json").write_text('{"init_ops": "nobody"}')
    words["kind"] = "asks for a GPU, and TensorFlow" if has_gpu() else "GPU"

    def damaged(name, reason, damage):
        folder = shutil.copytree(original, models / name / "1/model.savedmodel")
        damage(folder)
        words[name] = reason

    graph = (original / "saved_model.pb").read_bytes()
    damaged("cut", "is no SavedModel, or it is damaged", lambda f: (f / "saved_model.pb").write_bytes(graph[:-100]))
    damaged("text", "is no SavedModel, or it is damaged", lambda f: (f / "saved_model.pb").write_bytes(b"PK\3\4 no"))
    damaged("empty", "holds no graph", lambda f: (f / "saved_model.pb").write_bytes(b""))
    damaged("bare", "it has neither saved_model.pb nor", lambda f: (f / "saved_model.pb").unlink())
    damaged("no_weights", "TensorFlow error loading", lambda f: shutil.rmtree(f / "variables"))

    def shorten(folder):
        (weights,) = (folder / "variables").glob("*.data-*")
        weights.write_bytes(weights.read_bytes()[:-8])

    damaged("weights", "TensorFlow error loading", shorten)
    frozen = made.frozen(models / "frozen/1/model.graphdef")
    frozen.write_bytes(frozen.read_bytes()[:-50])
    words["frozen"] = "is no GraphDef, or it is damaged"
    rows = made.spec("x", [None, 1])
    made.save(models / "complex/1/model.savedmodel", lambda x: {"y": tf.cast(x, tf.complex64)}, rows)
    words["complex"] = "unsupported datatype 'complex64' for tensor 'y' for model 'complex'"
    made.save(models / "rankless/1/model.savedmodel", lambda x: {"y": x + 1}, made.spec("x", None))
    words["rankless"] = "Unable to autofill for 'rankless': the rank of model tensor 'x' is 0 which is not supported"
    made.save(models / "still/1/model.savedmodel", lambda x: {"y": x + 1}, made.spec("x", [2]))
    (models / "still/config.pbtxt").write_text(TENSORFLOW + "max_batch_size: 8")
    words["still"] = "configuration specified max-batch 8 but model signature does not support batching"
    shutil.copytree(original, models / "right/1/model.savedmodel")
    server = serve(*UNREADY).ready()
    for name, wanted in words.items():
        reason = reason_of(server, name)
        assert wanted in reason and "Traceback" not in reason, (name, reason)
    assert infer(connect(server, grpcclient), "right", x=np.ones((1, 4), np.float32))["y"].shape == (1, 2)


def has_gpu():
    """Whether a configuration that asks for a GPU comes as far as TensorFlow."""
    return shutil.which("nvidia-smi") is not None


def test_version_1_of_tensorflow_is_refused(serve, tmp_path):
    made.dense(tmp_path / "models/m/1/model.savedmodel")
    server = serve(*UNREADY, "--backend-config=tensorflow,version=1").ready()
    assert "--backend-config=tensorflow,version=1: models run with TensorFlow 2" in reason_of(server, "m")


def test_shapes_that_the_graph_refuses_are_errors_of_their_request(serve, tmp_path, connect):
    made.save(tmp_path / "models/m/1/model.savedmodel", lambda x: {"y": tf.reshape(x, [-1, 2, 2])},
              made.spec("x", [None, None]))  # fmt: skip
    client = connect(serve().ready(), grpcclient)
    with pytest.raises(InferenceServerException, match="TensorFlow error running inference: .*reshape") as caught:
        infer(client, "m", x=np.zeros((1, 3), np.float32))
    assert "{{" not in str(caught.value) and "[[" not in str(caught.value) and ".py" not in str(caught.value)
    assert infer(client, "m", x=np.zeros((1, 4), np.float32))["y"].shape == (1, 2, 2)


def test_check_completes_it_and_says_what_is_wrong(tmp_path):
    made.dense(tmp_path / "good/1/model.savedmodel")
    made.dense(tmp_path / "bad/1/model.savedmodel")
    (tmp_path / "bad/config.pbtxt").write_text(TENSORFLOW + said(TF_SIGNATURE_DEF="other"))
    command = [sys.executable, "-m", "tisfast", "check", "--run", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    text = done.stdout + done.stderr
    assert done.returncode != 0 and "expected 'other' signature" in text, text
    assert "1 model(s) loaded" in text and "Traceback" not in text, text
