"""ONNX models, served by ONNX Runtime: docs/onnxruntime.md."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

import ml_dtypes  # noqa: E402 - comes with onnx

from tests.system import onnx_models as made  # noqa: E402 - what it needs is there
from tests.system.array_calls import UNREADY, reason_of  # noqa: E402
from tests.system.conftest import until  # noqa: E402

DTYPES = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_, "BYTES": np.object_}


@pytest.fixture
def write(tmp_path):
    """Write a model into the test's repository."""

    def save(name, model, config="", **options):
        return made.save(model, tmp_path / "models" / name, config, **options)

    return save


@pytest.fixture
def ask(connect):
    """Ask over gRPC: arrays by name in and out."""

    def asked(server, name, types=None, outputs=None, **arrays):
        tensors = []
        for each, array in arrays.items():
            dtype = (types or {}).get(each) or grpcclient.np_to_triton_dtype(array.dtype)
            tensors.append(grpcclient.InferInput(each, list(array.shape), dtype))
            tensors[-1].set_data_from_numpy(array)
        wanted = [grpcclient.InferRequestedOutput(each) for each in outputs] if outputs else None
        answer = connect(server, grpcclient).infer(name, tensors, outputs=wanted)
        return {each.name: answer.as_numpy(each.name) for each in answer.get_response().outputs}

    return asked


def config_of(server, name):
    return server.ask("GET", f"/v2/models/{name}/config")[1]


def test_a_folder_with_nothing_but_a_model_file_is_served(serve, write, ask):
    write("sums", made.add_sub())
    server = serve().ready()
    config = config_of(server, "sums")
    assert (config["backend"], config["platform"]) == ("onnxruntime", "onnxruntime_onnx")
    assert config["max_batch_size"] == 4 and "dynamic_batching" in config
    assert [(each["name"], each["data_type"], each["dims"]) for each in config["input"]] == [
        ("INPUT0", "TYPE_FP32", [16]), ("INPUT1", "TYPE_FP32", [16]),
    ]  # fmt: skip
    a, b = np.random.default_rng(1).standard_normal((2, 3, 16), np.float32)
    found = ask(server, "sums", INPUT0=a, INPUT1=b)
    assert np.array_equal(found["OUTPUT0"], a + b) and np.array_equal(found["OUTPUT1"], a - b)


VALUES = {
    "BOOL": np.array([[True, False, True]]),
    **{
        f"{kind}{size}": np.array([[0, 1, 100]], f"{kind}{size}".lower())
        for kind in ("INT", "UINT")
        for size in (8, 16, 32, 64)
    },
    "FP16": np.array([[0, -1.5, np.inf]], np.float16),
    "FP32": np.array([[0, -1.5, np.inf]], np.float32),
    "FP64": np.array([[0, -1.5, np.inf]], np.float64),
    "BYTES": np.array([[b"", "ä€".encode(), b"a\0b"]], np.object_),
    "BF16": np.array([[0, -1.5, np.inf]], ml_dtypes.bfloat16),
}  # fmt: skip


def test_every_type_dynamic_dims_and_dims_of_zero(serve, write, ask):
    for dtype in VALUES:
        write(dtype.lower(), made.identity(dtype))
    server = serve().ready()
    for dtype, array in VALUES.items():
        types = {"X": dtype}
        config = config_of(server, dtype.lower())
        assert config["input"][0]["data_type"] == "TYPE_" + dtype.replace("BYTES", "STRING")
        for rows in (array, np.repeat(array, 3, axis=0), array[:, :0], array[:, :1]):
            found = ask(server, dtype.lower(), types, X=rows)["Y"]
            assert found.shape == rows.shape and np.array_equal(found, rows), dtype
        assert ask(server, dtype.lower(), types, X=array)["Y"].tolist() == array.tolist()


def test_text_that_is_not_utf8_is_the_error_of_its_request(serve, write, ask):
    write(
        "words",
        made.identity("BYTES"),
        "instance_group { kind: KIND_CPU } dynamic_batching { max_queue_delay_microseconds: 1000 }",
    )
    server = serve().ready()
    with pytest.raises(
        InferenceServerException, match="input 'X' of model 'words' has an element that is not UTF-8: byte 0xff at 1"
    ):
        ask(server, "words", X=np.array([[b"a\xff"]], np.object_))
    assert ask(server, "words", X=np.array([[b"a"]], np.object_))["Y"].tolist() == [[b"a"]]


PARAMETER = 'parameters {{ key: "{0}" value {{ string_value: "{1}" }} }}'


def test_what_cannot_be_served_is_told_in_a_sentence(serve, write):
    mixed = made.model(
        [made.node("Identity", ["X"], ["Y"]), made.node("Identity", ["A"], ["B"])],
        [("X", "BF16", ("n", "m")), ("A", "BYTES", ("n", "k"))],
        [("Y", "BF16", ("n", "m")), ("B", "BYTES", ("n", "k"))],
    )
    write("mixed", mixed)
    for key in ("intra_op_thread_count", "inter_op_thread_count"):
        write(key, made.identity(), 'backend: "onnxruntime" ' + PARAMETER.format(key, "-1"))
    server = serve(*UNREADY).ready()
    assert "model 'mixed' has tensors of BF16 (X, Y) beside inputs of strings" in reason_of(server, "mixed")
    for key in ("intra_op_thread_count", "inter_op_thread_count"):
        assert f"parameter {key} is -1: it is a number of threads, 0 or more" in reason_of(server, key)
    assert not any(record.get("traceback") for record in server.log), server.text()


def test_a_number_of_bf16_without_dimensions_has_none(serve, write, ask):
    first = [made.constant("first", np.array([0], np.int64))]
    write("m", made.model([made.node("Unsqueeze", ["X", "first"], ["Y"])], [("X", "BF16", ())], [("Y", "BF16", ("n",))],
                          first))  # fmt: skip
    found = ask(serve().ready(), "m", X=np.array([1.5], ml_dtypes.bfloat16))
    assert found["Y"].shape == (1,) and found["Y"].tolist() == [1.5]


def test_an_optional_number_without_dimensions_has_none(serve, write, ask):
    scaled = made.model(
        [made.node("Unsqueeze", ["K", "first"], ["k"]), made.node("Mul", ["X", "k"], ["Y"])],
        [("X", "FP32", ("n",)), ("K", "FP32", ())], [("Y", "FP32", ("n",))],
        [made.constant("K", np.float32(2)), made.constant("first", np.array([0], np.int64))],
    )  # fmt: skip
    dims = '{{ name: "{}" data_type: TYPE_{} dims: [ {} ] {} }}'
    inputs = [dims.format("X", "FP32", -1, ""), dims.format("K", "FP32", 1, "optional: true")]
    output = dims.format("Y", "FP32", -1, "")
    write("m", scaled, f'backend: "onnxruntime" input [ {", ".join(inputs)} ] output [ {output} ]')
    server = serve().ready()
    x = np.ones(3, np.float32)
    assert ask(server, "m", X=x)["Y"].tolist() == [2, 2, 2]
    assert ask(server, "m", X=x, K=np.array([5], np.float32))["Y"].tolist() == [5, 5, 5]


FLOATS = 1 << 16


def test_large_outputs_are_right_in_whatever_order_inputs_come(serve, write, ask):
    halves = made.model(
        [made.node("Relu", ["A"], ["C"]), made.node("Relu", ["B"], ["D"])],
        [("A", "FP32", (1, "n")), ("B", "FP32", (1, "m"))], [("C", "FP32", (1, "n")), ("D", "FP32", (1, "m"))],
    )  # fmt: skip
    write("m", halves)
    server = serve().ready()
    chance = np.random.default_rng(1)
    short, long = (chance.standard_normal((1, size), np.float32) for size in (FLOATS, 2 * FLOATS))
    for a, b in ((short, long), (long, short)) * 3:
        for arrays in ({"A": a, "B": b}, {"B": b, "A": a}):
            found = ask(server, "m", **arrays)
            assert np.array_equal(found["C"], np.maximum(a, 0)) and np.array_equal(found["D"], np.maximum(b, 0))


def weighty(folder, scale):
    """A model of 20 MB, whose weights lie in a file in a folder of their own; of the same size whatever the scale."""
    weights = np.full((64, 80_000), scale, np.float32)
    model = made.model(
        [made.node("MatMul", ["X", "W"], ["Y"])], [("X", "FP32", ("n", 64))], [("Y", "FP32", ("n", 80_000))],
        [made.constant("W", weights)],
    )  # fmt: skip
    (folder / "1/data").mkdir(parents=True, exist_ok=True)
    made.onnx.save_model(
        model, folder / "1/model.onnx", save_as_external_data=True, all_tensors_to_one_file=True,
        location="data/weights", size_threshold=0,
    )  # fmt: skip


def test_weights_in_a_folder_of_their_own_are_loaded_anew_when_they_change(serve, tmp_path, ask):
    folder, cache = tmp_path / "models/m", tmp_path / "cache"
    x = np.ones((1, 64), np.float32)
    flags = (f"--environment-cache-dir={cache}", "--model-control-mode=explicit", "--load-model=m")
    weighty(folder, 1)
    server = serve(*flags).ready()
    assert ask(server, "m", X=x)["Y"][0, 0] == 64
    (folder / "1/data/weights").unlink()
    weighty(folder, 2)
    assert server.ask("POST", "/v2/repository/models/m/unload", {})[0] == 200
    until(lambda: not server.model_ready("m"), "the model is unloaded")
    assert server.ask("POST", "/v2/repository/models/m/load", {})[0] == 200
    assert ask(server, "m", X=x)["Y"][0, 0] == 128
    assert len(list(cache.rglob("weights.bin"))) == 2


def test_a_damaged_file_in_the_cache_costs_the_sharing_and_not_the_model(serve, tmp_path, ask):
    weighty(tmp_path / "models/m", 1)
    cache = tmp_path / "cache"
    serve(f"--environment-cache-dir={cache}").ready().end()
    (graph,) = cache.rglob("model.onnx")
    graph.write_bytes(graph.read_bytes()[:-100])
    server = serve(f"--environment-cache-dir={cache}").ready()
    server.says("instances of model 'm' have weights of their own, as none could be shared")
    assert ask(server, "m", X=np.ones((1, 64), np.float32))["Y"][0, 0] == 64


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_sequences_with_controls_and_state(serve, write, connect, strategy):
    write("sums", made.accumulator(), made.ACCUMULATOR.replace("STRATEGY", strategy))
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
