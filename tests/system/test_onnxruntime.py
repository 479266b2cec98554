"""ONNX models, served by ONNX Runtime: docs/onnxruntime.md."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

pytest.importorskip("onnxruntime", reason="ONNX Runtime has no wheel for this interpreter")

import ml_dtypes  # noqa: E402 - comes with onnx

from tests.system import onnx_models as made  # noqa: E402 - what it needs is there

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
