"""Models of OpenVINO, and ONNX models that OpenVINO runs: docs/openvino.md."""

from __future__ import annotations

import signal

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

ov = pytest.importorskip("openvino", reason="OpenVINO has no wheel for this interpreter")

from openvino import opset13 as op  # noqa: E402

from tests.system import onnx_models  # noqa: E402
from tests.system.array_calls import (  # noqa: E402
    UNREADY,
    config_of,
    executions,
    infer,
    infer_each,
    reason_of,
)
from tests.system.helpers import until  # noqa: E402

OPENVINO = 'backend: "openvino"\n'
FLOATS = 4096 * 16


def graph(dims=(-1, 16), kind="f32", make=None, layout="", out="Y"):
    """A graph from X to Y: `make` of it, else the same values."""
    x = op.parameter(list(dims), getattr(ov.Type, kind), name="X")
    x.output(0).set_names({"X"})
    y = op.convert(x, kind) if make is None else make(x)
    result = op.result(y)
    result.output(0).set_names({out})
    model = ov.Model([result], [x], "test")
    if layout:
        for port in (*model.inputs, *model.outputs):
            ov.layout_helpers.set_layout(port, ov.Layout(layout))
    return model


def add_sub():
    a, b = (op.parameter([-1, 16], np.float32, name=name) for name in ("INPUT0", "INPUT1"))
    results = [op.result(op.add(a, b)), op.result(op.subtract(a, b))]
    for node, name in zip((a, b, *results), ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"), strict=True):
        node.output(0).set_names({name})
    return ov.Model(results, [a, b], "add_sub")


@pytest.fixture
def write(tmp_path):
    """Write a model into the test's repository."""

    def written(name, model, config="", file="model.xml"):
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(model, bytes):
            (folder / file).write_bytes(model)
        elif file.endswith(".onnx"):
            (folder / file).write_bytes(model.SerializeToString())
        else:
            ov.save_model(model, folder / file, compress_to_fp16=False)
        if config:
            (folder.parent / "config.pbtxt").write_text(OPENVINO + config)
        return folder / file

    return written


def parameters(**said):
    return "".join(f'parameters {{ key: "{key}" value {{ string_value: "{said[key]}" }} }}\n' for key in said)


def columns_of(config, role):
    return [(each["name"], each["data_type"], each["dims"]) for each in config[role]]


def test_a_folder_with_nothing_but_a_model_is_served(serve, write, connect):
    write("sums", add_sub())
    write("rows", graph(layout="NC", make=op.relu))
    write("still", graph((1, 3, 4), layout="NCH", make=op.relu))
    client = connect(server := serve().ready(), grpcclient)
    config = config_of(server, "sums")
    assert (config["backend"], config["max_batch_size"]) == ("openvino", 0), "no layout names a batch dimension"
    assert columns_of(config, "input") == [(name, "TYPE_FP32", [-1, 16]) for name in ("INPUT0", "INPUT1")]
    a, b = np.random.default_rng(1).standard_normal((2, 9, 16), np.float32)
    found = infer(client, "sums", INPUT0=a, INPUT1=b)
    assert np.array_equal(found["OUTPUT0"], a + b) and np.array_equal(found["OUTPUT1"], a - b)
    config = config_of(server, "rows")
    assert config["max_batch_size"] == 4 and "dynamic_batching" in config
    assert columns_of(config, "input") == [("X", "TYPE_FP32", [16])]
    assert np.array_equal(infer(client, "rows", X=a[:3])["Y"], np.maximum(a[:3], 0))
    assert config_of(server, "still")["max_batch_size"] == 4, "a batch of one is made one of any size"
    block = np.random.default_rng(2).standard_normal((3, 3, 4), np.float32)
    assert np.array_equal(infer(client, "still", X=block)["Y"], np.maximum(block, 0))


def test_an_onnx_file_is_served_too(serve, write, connect):
    write("sums", onnx_models.add_sub(), 'default_model_filename: "model.onnx" max_batch_size: 8', "model.onnx")
    client = connect(server := serve().ready(), grpcclient)
    a, b = np.random.default_rng(1).standard_normal((2, 3, 16), np.float32)
    assert np.array_equal(infer(client, "sums", INPUT0=a, INPUT1=b)["OUTPUT0"], a + b)
    assert "dynamic_batching" in config_of(server, "sums")


KINDS = {
    "boolean": "?", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8", "i8": "i1", "i16": "i2", "i32": "i4",
    "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8",
}  # fmt: skip


def test_every_type_and_dims_of_zero(serve, write, connect):
    for kind in KINDS:
        write(kind, graph((-1, -1), kind))
    write("string", onnx_models.identity("BYTES"), 'default_model_filename: "model.onnx"', "model.onnx")
    client = connect(serve().ready(), grpcclient)
    for kind, dtype in KINDS.items():
        for rows in (np.array([[0, 1, 100]]).astype(dtype), np.zeros((0, 3), dtype), np.ones((2, 1), dtype)):
            found = infer(client, kind, X=rows)["Y"]
            assert found.dtype == rows.dtype and found.shape == rows.shape and np.array_equal(found, rows), kind
    words = np.array([[b"", "ä€".encode(), b"ab"]], np.object_)
    assert infer(client, "string", X=words)["Y"].tolist() == words.tolist()


def test_types_of_the_configuration_are_converted(serve, write, connect):
    write("m", graph(make=lambda x: op.multiply(x, np.float32(2))),
          'max_batch_size: 8 input { name: "X" data_type: TYPE_INT32 dims: [ 16 ] }\n'
          'output { name: "Y" data_type: TYPE_FP64 dims: [ 16 ] }')  # fmt: skip
    client = connect(serve().ready(), grpcclient)
    rows = np.arange(32, dtype=np.int32).reshape(2, 16)
    found = infer(client, "m", X=rows)["Y"]
    assert found.dtype == np.float64 and np.array_equal(found, rows * 2)


def test_numbers_without_dimensions(serve, write, connect):
    write("m", graph((), make=op.relu))
    client = connect(serve().ready(), grpcclient)
    assert infer(client, "m", X=np.array([-3], np.float32))["Y"].tolist() == [0]
    assert infer(client, "m", X=np.array([3], np.float32))["Y"].tolist() == [3]


def test_large_outputs_are_right_whatever_came_before(serve, write, connect):
    write("m", graph((-1, FLOATS), make=op.relu), "max_batch_size: 8 dynamic_batching { }")
    client = connect(serve().ready(), grpcclient)
    for at, count in enumerate((1, 1, 1, 2, 1, 3, 2, 1)):
        rows = np.random.default_rng(at).standard_normal((count, FLOATS), np.float32)
        assert np.array_equal(infer(client, "m", X=rows)["Y"], np.maximum(rows, 0)), at
    many = [{"X": np.full((1, FLOATS), at, np.float32)} for at in range(16)]
    answers = infer_each(client, "m", many)
    assert [answer["Y"][0, -1] for answer in answers] == list(range(16))


def test_rows_that_a_graph_leaves_out_are_not_those_of_another_answer(serve, write, connect):
    """A place that was taken for more rows has what was there before behind those that are written."""
    dims = ("n", FLOATS)
    picks = onnx_models.model(
        [onnx_models.node("Compress", ["X", "C"], ["Y"], axis=0)],
        [("X", "FP32", dims), ("C", "BOOL", ("n", 1))], [("Y", "FP32", ("k", FLOATS))],
    )  # fmt: skip
    picks.graph.node[0].input[1] = "flat"
    picks.graph.node.insert(0, onnx_models.node("Squeeze", ["C", "axis"], ["flat"]))
    picks.graph.initializer.append(onnx_models.constant("axis", np.array([1], np.int64)))
    write("m", picks, 'max_batch_size: 8 default_model_filename: "model.onnx"', "model.onnx")
    client = connect(serve().ready(), grpcclient)
    rows = np.random.default_rng(1).standard_normal((2, FLOATS), np.float32)
    both, one = np.array([[True], [True]]), np.array([[True], [False]])
    for _ in range(2):
        with pytest.raises(InferenceServerException, match="batch size of openvino model output to be 2, got 1"):
            infer(client, "m", X=rows, C=one)
        for _ in range(3):
            assert np.array_equal(infer(client, "m", X=rows, C=both)["Y"], rows)


def hard(x):
    """The batch of two is written into the middle of the graph."""
    return op.reshape(op.relu(x), op.constant(np.array([2, 16], np.int64)), False)


def test_a_batch_that_is_written_into_the_graph(serve, write, connect):
    write("strict", graph((2, 16), make=hard), "max_batch_size: 2")
    write("padded", graph((2, 16), make=hard), "max_batch_size: 2 " + parameters(ENABLE_BATCH_PADDING="YES"))
    client = connect(serve().ready(), grpcclient)
    rows = np.random.default_rng(1).standard_normal((2, 16), np.float32)
    for count in (2, 1, 2):
        found = infer(client, "padded", X=rows[:count])["Y"]
        assert np.array_equal(found, np.maximum(rows[:count], 0)), "also a whole batch after a part of one"
    assert np.array_equal(infer(client, "strict", X=rows)["Y"], np.maximum(rows, 0))
    with pytest.raises(InferenceServerException, match=r"expected requests with batch size '2', got '1'"):
        infer(client, "strict", X=rows[:1])


def test_requests_are_joined_and_each_gets_its_own_rows(serve, write, connect):
    write("m", graph(make=op.relu), "max_batch_size: 64 dynamic_batching { max_queue_delay_microseconds: 20000 }")
    client = connect(server := serve().ready(), grpcclient)
    rows = np.random.default_rng(3).standard_normal((200, 16), np.float32)
    parts = [rows[at : at + 1 + at % 3] for at in range(100)]
    for part, answer in zip(parts, infer_each(client, "m", [{"X": part} for part in parts]), strict=True):
        assert np.array_equal(answer["Y"], np.maximum(part, 0))
    count, batches = executions(server, "m")
    assert count == sum(map(len, parts)) and batches < len(parts)


def test_parameters(serve, write, connect):
    write("set", graph(make=op.relu), "max_batch_size: 8 " + parameters(
        INFERENCE_NUM_THREADS="1", COMPILATION_NUM_THREADS="1", NUM_STREAMS="AUTO", PERFORMANCE_HINT="THROUGHPUT",
        HINT_BF16="yes", SKIP_OV_DYNAMIC_BATCHSIZE="YES", TARGET_DEVICE="cpu"))  # fmt: skip
    dims = '{{ name: "{}" data_type: TYPE_FP32 dims: [ 8, 4 ] }}'
    write("shaped", graph((-1, 2, 4), make=op.relu), f"max_batch_size: 8 input {dims.format('X')} output "
          f"{dims.format('Y')} " + parameters(RESHAPE_IO_LAYERS="YES"))  # fmt: skip
    write("shares", graph(make=op.relu), "max_batch_size: 8 instance_group [ { count: 2 } ]")
    client = connect(server := serve("--log-verbose=1").ready(), grpcclient)
    told = server.said(lambda r: "Configuring HINT_BF16 to yes" in r["message"], "what was set")["message"]
    assert "PERFORMANCE_HINT THROUGHPUT, NUM_STREAMS AUTO, ENABLE_CPU_PINNING False, INFERENCE_NUM_THREADS 1" in told
    assert "INFERENCE_PRECISION_HINT bf16" in told
    threads = max(1, (psutil.cpu_count() or 1) // 2)
    share = f"INFERENCE_NUM_THREADS {threads}, INFERENCE_PRECISION_HINT f32"
    server.said(lambda r: share in r["message"], "a share of the cores")
    rows = np.random.default_rng(1).standard_normal((2, 16), np.float32)
    assert np.allclose(infer(client, "set", X=rows)["Y"], np.maximum(rows, 0), atol=0.05)
    block = np.random.default_rng(1).standard_normal((2, 8, 4), np.float32)
    assert np.array_equal(infer(client, "shaped", X=block)["Y"], np.maximum(block, 0))


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_sequences_with_controls_and_state(serve, write, connect, strategy):
    config = onnx_models.ACCUMULATOR.replace("STRATEGY", strategy).replace('backend: "onnxruntime"', "")
    write("sums", onnx_models.accumulator(), 'default_model_filename: "model.onnx"\n' + config, "model.onnx")
    client = connect(serve().ready(), grpcclient)

    def send(sequence, value, **flags):
        tensor = grpcclient.InferInput("INPUT", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
        answer = client.infer("sums", [tensor], sequence_id=sequence, **flags)
        return [answer.as_numpy(name).item() for name in ("OUTPUT", "WHO", "ROWS")]

    assert send(7, 1, sequence_start=True) == [1, 7, 1]
    assert send(8, 10, sequence_start=True) == [10, 8, 1]
    assert send(7, 2) == [3, 7, 1] and send(8, 20) == [30, 8, 1]
    assert send(7, 3, sequence_end=True) == [6, 7, 1]
    assert send(7, 5, sequence_start=True) == [5, 7, 1], "state begins anew"


def whole(tmp_path):
    """A model's two files."""
    weights = np.arange(256, dtype=np.float32).reshape(16, 16)
    model = graph(make=lambda x: op.matmul(x, op.constant(weights), False, False))
    ov.save_model(model, tmp_path / "whole.xml", compress_to_fp16=False)
    return (tmp_path / "whole.xml").read_bytes(), (tmp_path / "whole.bin").read_bytes()


X, Y = (role + ' {{ name: "{}" data_type: TYPE_{} dims: [ {} ] }} ' for role in ("input", "output"))


def wrong_models():
    """By name: (graph, configuration, words of the reason)."""
    relu = graph(make=op.relu)
    both = "max_batch_size: 8 " + X.format("X", "FP32", 16) + Y.format("Y", "FP32", 16)
    return {
        "noise": (b"\x00\x01" * 99, "", "openvino error reading model: Unable to read the model"),
        "empty": (b"", "", "openvino error reading model: Unable to read the model"),
        "other": (b'{"learner": {}}', "", "openvino error reading model: Unable to read the model"),
        "name": (relu, both.replace('"X"', '"Z"'), "unexpected inference input 'Z', allowed inputs are: X"),
        "dims": (relu, both.replace("16", "17"), "the model expects 2 dimensions (shape [-1,16])"),
        "text": (relu, both.replace("FP32", "STRING"), "configuration expects datatype TYPE_STRING"),
        "threads": (relu, parameters(INFERENCE_NUM_THREADS="-1"),
                    "expected the parameter 'INFERENCE_NUM_THREADS' to be a non-negative number, got -1"),
        "streams": (relu, parameters(NUM_STREAMS="some"), "to be either AUTO/NUMA/<int_value>, got some"),
        "hint": (relu, parameters(PERFORMANCE_HINT="fast"), "LATENCY/THROUGHPUT/CUMULATIVE_THROUGHPUT, got fast"),
        "half": (relu, parameters(HINT_BF16="no"), "expected the parameter 'HINT_BF16' to be YES, got no"),
        "library": (relu, parameters(CPU_EXTENSION_PATH="/nowhere.so"), "openvino error loading custom CPU extensions"),
        "device": (relu, parameters(TARGET_DEVICE="NPU7"), "openvino error loading model on device NPU7"),
    }  # fmt: skip


def test_what_is_wrong_with_a_file_or_its_configuration_is_told(serve, write, connect, tmp_path):
    cases = wrong_models()
    for name, (model, config, _) in cases.items():
        write(name, model, config)
    xml, weights = whole(tmp_path)
    write("cut", xml).with_suffix(".bin").write_bytes(weights[:100])
    write("alone", xml)
    write("right", xml).with_suffix(".bin").write_bytes(weights)
    client = connect(server := serve(*UNREADY).ready(), grpcclient)
    words = {name: words for name, (_, _, words) in cases.items()}
    words |= {"cut": "Incorrect weights in bin file", "alone": "bin file cannot be found"}
    for name, wanted in words.items():
        reason = reason_of(server, name)
        assert wanted in reason and "Traceback" not in reason and ".cpp" not in reason, name
    assert infer(client, "right", X=np.ones((1, 16), np.float32))["Y"].shape == (1, 16)


def test_shapes_that_the_graph_refuses_are_the_client_s_error(serve, write, connect):
    def halves(x):
        return op.reshape(x, op.constant(np.array([0, 2, -1], np.int64)), True)

    write("m", graph((-1, -1), make=halves))
    client = connect(serve().ready(), grpcclient)
    with pytest.raises(InferenceServerException, match="openvino error running inference"):
        infer(client, "m", X=np.zeros((1, 3), np.float32))
    assert infer(client, "m", X=np.zeros((1, 4), np.float32))["Y"].shape == (1, 2, 2)


def test_a_worker_that_is_killed_comes_back_and_a_changed_file_is_loaded(serve, write, connect):
    write("m", graph(make=op.relu))
    client = connect(server := serve("--model-control-mode=explicit", "--load-model=m").ready(), grpcclient)
    before = server.worker("m_0")
    psutil.Process(before).send_signal(signal.SIGKILL)
    until(lambda: server.worker("m_0") != before and server.model_ready("m"), "the model is ready again")
    assert infer(client, "m", X=np.zeros((1, 16), np.float32))["Y"].shape == (1, 16)
    write("m", graph((-1, 8), make=op.relu))
    client.load_model("m")
    assert infer(client, "m", X=np.zeros((1, 8), np.float32))["Y"].shape == (1, 8)


def test_nobody_is_told_that_it_is_used(serve, write, connect, monkeypatch, tmp_path):
    """Where openvino-telemetry is there, importing openvino makes files in the user's home, and asks the network."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.delenv("CI", raising=False)
    write("m", graph())
    server = serve().ready()
    assert infer(connect(server, grpcclient), "m", X=np.ones((1, 16), np.float32))["Y"].shape == (1, 16)
    server.end(signal.SIGTERM)
    assert not (tmp_path / "home/intel").exists()
    assert not any("multiprocessing" in record["message"] for record in server.log)
