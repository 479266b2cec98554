"""SavedModels and frozen graphs of TensorFlow: docs/tensorflow.md (make test-tensorflow)."""

from __future__ import annotations

import json
import signal

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

tf = pytest.importorskip("tensorflow", reason="TensorFlow is in an environment of its own: make test-tensorflow")

from tests.system import tensorflow_models as made  # noqa: E402 - what it needs is there
from tests.system.array_calls import config_of, executions, infer, infer_each  # noqa: E402
from tests.system.helpers import until  # noqa: E402

A, B = np.random.default_rng(1).standard_normal((2, 3, 4), np.float32)
FOLDER = "model.savedmodel"


@pytest.fixture
def place(tmp_path):
    """Where a model of the test's repository lies; its configuration is written."""

    def placed(name, config="", file=FOLDER):
        version = tmp_path / "models" / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        if config:
            (version.parent / "config.pbtxt").write_text(config)
        return version / file

    return placed


def parameters(**said):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{said[key]}" }} }}\n' for key in said)


def columns_of(config, role):
    return sorted((each["name"], each["data_type"], each["dims"]) for each in config[role])


def sums(a, b):
    return {"sum": a + b, "difference": a - b}


TWO = (made.spec("a", [None, 4]), made.spec("b", [None, 4]))


def test_a_folder_with_nothing_but_a_saved_model_is_served(serve, place, connect):
    made.save(place("sums"), sums, *TWO)
    made.dense(place("dense"))
    made.save(place("still"), lambda x: {"y": x * 2}, made.spec("x", [2, 3]))
    made.save(place("flat"), lambda x: {"y": x + 1}, made.spec("x", [None], tf.int32))
    made.save(place("point"), lambda x: {"y": x + 1, "text": tf.strings.as_string(x)}, made.spec("x", [], tf.int32))
    client = connect(server := serve().ready(), grpcclient)
    config = config_of(server, "sums")
    assert (config["backend"], config["platform"]) == ("tensorflow", "tensorflow_savedmodel")
    assert config["max_batch_size"] == 4
    assert "dynamic_batching" in config and config["default_model_filename"] == FOLDER
    assert columns_of(config, "input") == [(name, "TYPE_FP32", [4]) for name in ("a", "b")]
    assert columns_of(config, "output") == [(name, "TYPE_FP32", [4]) for name in ("difference", "sum")]
    found = infer(client, "sums", a=A, b=B)
    assert np.array_equal(found["sum"], A + B) and np.array_equal(found["difference"], A - B)
    assert np.array_equal(infer(client, "sums", ["sum"], a=A, b=B)["sum"], A + B), "one of them alone"
    assert np.allclose(infer(client, "dense", x=A)["y"], A.sum(1, keepdims=True) + [0, 1], atol=1e-6)
    assert config_of(server, "still")["max_batch_size"] == 0
    assert columns_of(config_of(server, "still"), "input") == [("x", "TYPE_FP32", [2, 3])]
    assert np.array_equal(infer(client, "still", x=A[:2, :3])["y"], A[:2, :3] * 2)
    assert config_of(server, "flat")["input"][0]["reshape"] == {"shape": []}
    assert infer(client, "flat", x=np.array([[1], [2]], np.int32))["y"].tolist() == [[2], [3]]
    found = infer(client, "point", x=np.array([6], np.int32))
    assert found["y"].tolist() == [7] and found["text"].tolist() == [b"6"]


def test_every_type_and_dims_of_zero(serve, place, connect):
    for kind, dtype in made.DTYPES.items():
        made.save(place(kind), lambda x: {"y": tf.identity(x)}, made.spec("x", [None, None], dtype))
    client = connect(server := serve().ready(), grpcclient)
    for kind, dtype in made.DTYPES.items():
        config_type = "TYPE_STRING" if kind == "BYTES" else f"TYPE_{kind}"
        assert columns_of(config_of(server, kind), "output") == [("y", config_type, [-1])]
        if kind in ("BYTES", "BF16"):
            continue
        for values in (np.array([[0, 1, 100]]), np.zeros((1, 0)), np.ones((2, 1))):
            rows = values.astype(dtype.as_numpy_dtype)
            found = infer(client, kind, x=rows)["y"]
            assert found.dtype == rows.dtype and found.shape == rows.shape and np.array_equal(found, rows), kind
    words = np.array([[b"", "ä€".encode(), b"a\0b\xff\0"]], np.object_)
    assert infer(client, "BYTES", x=words)["y"].tolist() == words.tolist(), "bytes, and not texts"
    assert infer(client, "BYTES", x=np.zeros((2, 0), np.object_))["y"].shape == (2, 0)
    halves = np.array([[1.5, -2, np.inf]], tf.bfloat16.as_numpy_dtype)
    assert np.array_equal(infer(client, "BF16", x=halves)["y"], halves)


def test_what_the_configuration_leaves_open_is_filled_in_by_tritons_rules(serve, place, connect):
    part = 'platform: "tensorflow_savedmodel" input { name: "a" data_type: TYPE_FP32 dims: [ 4 ] }'
    made.save(place("hinted", part), sums, *TWO)
    made.save(place("whole", part.replace("[ 4 ]", "[ -1, 4 ]")), sums, *TWO)
    bare = 'backend: "tensorflow" max_batch_size: 32 input { name: "b" } output { name: "sum" }'
    made.save(place("bare", bare), sums, *TWO)
    open_ = 'backend: "tensorflow" max_batch_size: 2 input { name: "x" dims: [ 3 ] } output { name: "y" dims: [ 3 ] }'
    made.save(place("open", open_), lambda x: {"y": x * 2}, made.spec("x", None))
    reshaped = ('backend: "tensorflow" max_batch_size: 8 input { name: "a" data_type: TYPE_FP32 dims: [ 2, 2 ] '
                'reshape { shape: [ 4 ] } }')  # fmt: skip
    made.save(place("reshaped", reshaped), sums, *TWO)
    client = connect(server := serve("--backend-config=default-max-batch-size=7").ready(), grpcclient)
    config = config_of(server, "hinted")
    assert config["max_batch_size"] == 7 and [each["name"] for each in config["input"]] == ["a", "b"]
    config = config_of(server, "whole")
    assert config["max_batch_size"] == 0 and columns_of(config, "input")[1] == ("b", "TYPE_FP32", [-1, 4])
    assert "dynamic_batching" not in config and np.array_equal(infer(client, "whole", a=A, b=B)["sum"], A + B)
    config = config_of(server, "bare")
    assert config["max_batch_size"] == 32 and "dynamic_batching" in config
    assert columns_of(config, "input") == [(name, "TYPE_FP32", [4]) for name in ("a", "b")]
    assert columns_of(config, "output") == [("sum", "TYPE_FP32", [4])], "of outputs only those that are written"
    assert columns_of(config_of(server, "open"), "input") == [("x", "TYPE_FP32", [3])]
    assert np.array_equal(infer(client, "open", x=A[:2, :3])["y"], A[:2, :3] * 2)
    found = infer(client, "reshaped", a=A.reshape(3, 2, 2), b=B)
    assert np.array_equal(found["sum"], A + B), "the client's dims are not the model's"


def test_signatures_tags_and_graphs_of_tensorflow_1(serve, place, connect):
    made.save(place("named", 'backend: "tensorflow"\n' + parameters(TF_SIGNATURE_DEF="less")), sums, *TWO,
              signatures={"less": "difference"})  # fmt: skip
    with tf.Graph().as_default():
        words = tf.compat.v1.placeholder(tf.string, [None, 1], name="w")
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
        scale = tf.compat.v1.get_variable("scale", initializer=np.int32(10))
        made.graph(place("first", 'backend: "tensorflow"\n' + parameters(TF_GRAPH_TAG="mine")), {"words": words},
                   {"found": table.lookup(words) * scale}, tags=["mine"], signature="odd", as_text=True)  # fmt: skip
    client = connect(server := serve().ready(), grpcclient)
    assert list(infer(client, "named", a=A, b=B)) == ["difference"]
    assert columns_of(config_of(server, "first"), "input") == [("words", "TYPE_STRING", [1])]
    words = np.array([[b"b"], [b"a"], [b"c"]], np.object_)
    assert infer(client, "first", words=words)["found"].tolist() == [[20], [10], [-10]], "with its table and variable"
    server.said(lambda r: "unable to find serving signature 'serving_default' of model 'first', using signature 'odd'"
                in r["message"], "which signature it is")  # fmt: skip


def test_frozen_graphs(serve, place, connect):
    made.frozen(place("alone", file="model.graphdef"))
    inputs = " ".join(f'input {{ name: "{name}" data_type: TYPE_FP32 dims: [ 4 ] }}' for name in "ab")
    inner = (f'platform: "tensorflow_graphdef" max_batch_size: 8 {inputs} '
             'output { name: "sum" data_type: TYPE_FP32 dims: [ 4 ] }')  # fmt: skip
    made.frozen(place("inner", inner, file="model.graphdef"))
    client = connect(server := serve().ready(), grpcclient)
    config = config_of(server, "alone")
    assert (config["platform"], config["max_batch_size"]) == ("tensorflow_graphdef", 4)
    assert columns_of(config, "input") == [(name, "TYPE_FP32", [4]) for name in ("a", "b")], "its placeholders"
    assert columns_of(config, "output") == [(name, "TYPE_FP32", [4]) for name in ("difference", "scaled")], "its ends"
    found = infer(client, "alone", a=A, b=B)
    assert np.allclose(found["scaled"], (A + B) * 2) and np.array_equal(found["difference"], A - B)
    assert np.array_equal(infer(client, "inner", a=A, b=B)["sum"], A + B), "any node can be an output"


def test_requests_are_joined_and_each_gets_its_own_rows(serve, place, connect):
    config = 'backend: "tensorflow" max_batch_size: 64 dynamic_batching { max_queue_delay_microseconds: 20000 }'
    made.dense(place("m", config))
    made.save(place("large", 'backend: "tensorflow" max_batch_size: 8'), lambda x: {"y": tf.nn.relu(x)},
              made.spec("x", [None, 65536]))  # fmt: skip
    client = connect(server := serve().ready(), grpcclient)
    rows = np.random.default_rng(3).standard_normal((200, 4), np.float32)
    parts = [rows[at : at + 1 + at % 3] for at in range(100)]
    for part, answer in zip(parts, infer_each(client, "m", [{"x": part} for part in parts]), strict=True):
        assert np.allclose(answer["y"], part.sum(1, keepdims=True) + [0, 1], atol=1e-6)
    count, batches = executions(server, "m")
    assert count == sum(map(len, parts)) and batches < len(parts)
    many = [{"x": np.full((1, 65536), at, np.float32)} for at in range(16)]
    assert [answer["y"][0, -1] for answer in infer_each(client, "large", many)] == list(range(16))


ACCUMULATOR = """
backend: "tensorflow" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "total" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "who" data_type: TYPE_UINT64 dims: [ 1 ] }
sequence_batching { STRATEGY
  control_input { name: "begins" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
  control_input { name: "id" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  state { input_name: "before" output_name: "after" data_type: TYPE_FP32 dims: [ 1 ] } }
"""


def accumulate(x, before, begins, identity):
    total = x + before * (1 - begins)
    return {"total": total, "after": tf.identity(total), "who": tf.identity(identity)}


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_sequences_with_controls_and_state(serve, place, connect, strategy):
    specs = [made.spec(name, [None, 1]) for name in ("x", "before", "begins")]
    made.save(place("sums", ACCUMULATOR.replace("STRATEGY", strategy)), accumulate, *specs,
              made.spec("id", [None, 1], tf.uint64))  # fmt: skip
    client = connect(serve().ready(), grpcclient)

    def send(sequence, value, **flags):
        tensor = grpcclient.InferInput("x", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
        answer = client.infer("sums", [tensor], sequence_id=sequence, **flags)
        return [answer.as_numpy(name).item() for name in ("total", "who")]

    assert send(7, 1, sequence_start=True) == [1, 7]
    assert send(8, 10, sequence_start=True) == [10, 8]
    assert send(7, 2) == [3, 7] and send(8, 20) == [30, 8]
    assert send(7, 3, sequence_end=True) == [6, 7]
    assert send(7, 5, sequence_start=True) == [5, 7]


def test_parameters_and_settings(serve, place, connect):
    said = parameters(TF_NUM_INTRA_THREADS="3", TF_NUM_INTER_THREADS="-1", TF_USE_PER_SESSION_THREADS="yes",
                      MAX_SESSION_SHARE_COUNT="2")  # fmt: skip
    made.dense(place("set", 'backend: "tensorflow" ' + said))
    made.dense(place("shares", 'backend: "tensorflow" instance_group [ { count: 2 } ]'))
    chain = lambda x: {"y": tf.nn.relu(tf.nn.relu(x * 2) + 1)}  # noqa: E731
    made.save(place("compiled", 'backend: "tensorflow" optimization { graph { level: 1 } }'), chain, *TWO[:1])
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.int32, [None, 1], name="x")
        state = tf.compat.v1.get_variable("state", initializer=np.int32(41), use_resource=False)
        tf.add(x, state, name="y")
        init = state.initializer.name
    begun = place("begun", 'backend: "tensorflow" ' + parameters(TF_INIT_OPS_FILE="begin.json"), file="model.graphdef")
    begun.write_bytes(graph.as_graph_def().SerializeToString())
    begun.parent.with_name("begin.json").write_text(json.dumps({"init_ops": [init]}))
    warm = ('backend: "tensorflow" max_batch_size: 4 model_warmup { name: "w" batch_size: 2 count: 3 inputs { key: "x" '
            "value { data_type: TYPE_FP32 dims: [ 4 ] random_data: true } } }")  # fmt: skip
    made.dense(place("warm", warm))
    flags = ("--log-verbose=1", "--backend-config=tensorflow,allow-soft-placement=false")
    client = connect(server := serve(*flags).ready(), grpcclient)
    told = server.said(lambda r: "Configuring TF_NUM_INTER_THREADS to -1" in r["message"], "what was set")["message"]
    assert "3 thread(s) for an operation, -1 for operations at one time" in told
    server.said(lambda r: "MAX_SESSION_SHARE_COUNT of model 'set' has no effect" in r["message"], "what does nothing")
    share = max(1, (psutil.cpu_count() or 1) // 2)
    text = f"{share} thread(s) for an operation, {share} for operations at one time"
    server.said(lambda r: text in r["message"], "a share of the cores")
    assert np.allclose(infer(client, "set", x=A)["y"], A.sum(1, keepdims=True) + [0, 1], atol=1e-6)
    assert np.allclose(infer(client, "compiled", a=A)["y"], np.maximum(np.maximum(A * 2, 0) + 1, 0))
    assert infer(client, "begun", x=np.array([[1]], np.int32))["y"].tolist() == [[42]]
    assert infer(client, "warm", x=A)["y"].shape == (3, 2)


def test_a_worker_that_is_killed_comes_back_and_a_changed_folder_is_loaded(serve, place, connect):
    folder = made.dense(place("m"))
    client = connect(server := serve("--model-control-mode=explicit", "--load-model=m").ready(), grpcclient)
    before = server.worker("m_0")
    psutil.Process(before).send_signal(signal.SIGKILL)
    until(lambda: server.worker("m_0") != before and server.model_ready("m"), "the model is ready again")
    assert infer(client, "m", x=A)["y"].shape == (3, 2)
    made.dense(folder, outputs=5)
    client.load_model("m")
    assert infer(client, "m", x=A)["y"].shape == (3, 5)


def test_a_saved_model_is_served_without_a_repository(serve_files, tmp_path, connect):
    made.dense(tmp_path / "flowers")
    client = connect(serve_files(str(tmp_path / "flowers")).ready(), grpcclient)
    assert infer(client, "flowers", x=A)["y"].shape == (3, 2)
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'x'"):
        infer(client, "flowers", x=np.zeros((1, 5), np.float32))


def test_a_saved_model_in_tensorflow_servings_layout_is_served_as_it_lies(serve_files, tmp_path, connect):
    made.dense(tmp_path / "flowers" / "1")
    client = connect(serve_files(f"flowers={tmp_path / 'flowers' / '1'}").ready(), grpcclient)
    assert infer(client, "flowers", x=A)["y"].shape == (3, 2)
