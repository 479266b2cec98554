"""TorchScript models, served by PyTorch: docs/pytorch.md (make test-torch)."""

from __future__ import annotations

import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

pytest.importorskip("torch", reason="torch is in an environment of its own: make test-torch")

import ml_dtypes  # noqa: E402 - comes with onnx

from tests.system import torch_models as made  # noqa: E402 - what it needs is there
from tests.system.helpers import SECONDS_MAX  # noqa: E402

A, B = np.random.default_rng(1).standard_normal((2, 3, 4), np.float32)
SUMS = [made.tensor("OUTPUT__0"), made.tensor("OUTPUT__1")]


@pytest.fixture
def write(tmp_path):
    """Write a model into the test's repository."""

    def save(name, module, config="", **options):
        return made.save(module, tmp_path / "models" / name, config, **options)

    return save


def config_of(server, name):
    return server.ask("GET", f"/v2/models/{name}/config")[1]


NAMINGS = {
    "arguments": (["b", "a"], ["OUTPUT__0", "OUTPUT__1"]),
    "indices": (["Q__1", "P__0"], ["Y__0", "Z__1"]),
    "order": (["first", "second"], ["sum", "difference"]),
}


@pytest.mark.parametrize("naming", NAMINGS)
def test_tensors_are_found_by_argument_by_index_or_by_order(serve, write, ask, naming):
    inputs, outputs = NAMINGS[naming]
    written = outputs[::-1] if naming == "indices" else outputs
    config = made.config([made.tensor(each) for each in inputs], [made.tensor(each) for each in written])
    write("sums", made.AddSub(), config)
    a, b = (inputs[1], inputs[0]) if naming != "order" else inputs
    server = serve().ready()
    found = ask(server, "sums", **{a: A, b: B})
    assert np.array_equal(found[outputs[0]], A + B) and np.array_equal(found[outputs[1]], A - B)
    assert config_of(server, "sums")["platform"] == "pytorch_libtorch"


def test_hooks_that_were_saved_with_a_module_are_called(serve, write, ask):
    write("hooked", made.Hooked(), made.config([made.tensor("a")], [made.tensor("OUTPUT__0")]))
    assert np.allclose(ask(serve().ready(), "hooked", a=A)["OUTPUT__0"], A * 2 + 1)


def test_dictionaries_named_tuples_lists_and_strings(serve, write, ask):
    pair = [made.tensor("a"), made.tensor("b")]
    by_name = [made.tensor("difference"), made.tensor("total")]
    write("named", made.NamedOutputs(), made.config(pair, by_name))
    write("dictionary", made.DictInDictOut(), made.config(pair, by_name))
    write("listed", made.ListOfTensors(), made.config([made.tensor("a")], SUMS))
    words = made.tensor("words", "STRING", "1", "reshape { shape: [ ] }")
    loud = made.tensor("loud", "STRING", "1", "reshape { shape: [ ] }")
    write("words", made.Words(), made.config([words, made.tensor("times")], [loud, made.tensor("twice")]))
    write("defaults", made.Defaults(), made.config([made.tensor("a")], [made.tensor("OUTPUT__0")]))
    write("optional", made.Defaults(), made.config([made.tensor("b"), made.tensor("a")], [made.tensor("OUTPUT__0")]))
    server = serve().ready()
    for name in ("named", "dictionary"):
        found = ask(server, name, a=A, b=B)
        assert np.array_equal(found["total"], A + B) and np.array_equal(found["difference"], A - B), name
    found = ask(server, "listed", a=A)
    assert np.array_equal(found["OUTPUT__0"], A) and np.array_equal(found["OUTPUT__1"], A * 2)
    text = np.array([["ä€".encode()], [b""], [b"a\0b"]], np.object_)
    found = ask(server, "words", words=text, times=A)
    assert found["loud"].tolist() == [["ä€!".encode()], [b"!"], [b"a\0b!"]] and np.array_equal(found["twice"], A * 2)
    with pytest.raises(InferenceServerException, match="element that is not UTF-8: byte 0xff at 1"):
        ask(server, "words", words=np.array([[b"a\xff"]], np.object_), times=A[:1])
    assert np.array_equal(ask(server, "defaults", a=A)["OUTPUT__0"], A * 3)
    assert np.array_equal(ask(server, "optional", a=A, b=B)["OUTPUT__0"], A * 3 + B)


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
}  # fmt: skip


def test_every_type_and_dims_of_zero(serve, write, ask):
    for dtype in [*VALUES, "BF16"]:
        write(dtype.lower(), made.Identity(), made.config([made.tensor("x", dtype)], [made.tensor("y", dtype)]))
        write("copy_" + dtype.lower(), made.Flat(), made.config([made.tensor("x", dtype)], [made.tensor("y", dtype)]))
    server = serve().ready()
    values = {**VALUES, "BF16": np.array([[0, -1.5, np.inf]], ml_dtypes.bfloat16)}
    for dtype, array in values.items():
        for model in (dtype.lower(), "copy_" + dtype.lower()):
            for rows in (array, np.repeat(array, 3, axis=0), array[:, :0], array[:, :1]):
                if model.startswith("copy_") and not rows.size:
                    continue
                found = ask(server, model, {"x": dtype}, x=rows)["y"]
                assert found.shape == rows.shape and np.array_equal(found, rows), model


def test_requests_that_are_joined_get_their_own_rows(serve, write, connect):
    more = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 100000 }"
    for name, module in (("flat", made.Flat()), ("in_place", made.InPlace()), ("same", made.Identity())):
        write(name, module, made.config([made.tensor("x")], [made.tensor("y")], more))
    client = connect(serve().ready(), grpcclient)
    rows = [np.full((1, 5), at, np.float32) for at in range(16)]
    answers: queue.Queue = queue.Queue()
    for name, more in (("flat", 0), ("in_place", 1), ("same", 0)):
        for size in (1, 2):
            for at, row in enumerate(rows):
                each = grpcclient.InferInput("x", [size, 5], "FP32")
                each.set_data_from_numpy(np.repeat(row, size, axis=0))
                client.async_infer(name, [each], lambda result, error, at=at: answers.put((at, result, error)))
            for _ in rows:
                at, answer, error = answers.get(timeout=SECONDS_MAX)
                assert error is None, error
                assert np.array_equal(answer.as_numpy("y"), np.repeat(rows[at], size, axis=0) + more), name
    batches = client.get_inference_statistics("flat", as_json=True)["model_stats"][0]["batch_stats"]
    assert any(int(each["batch_size"]) > 2 for each in batches), "some were executed together"


def test_what_the_model_returns_is_held_against_the_configuration(serve, write, ask):
    x = [made.tensor("x")]
    write("other_type", made.Identity(), made.config(x, [made.tensor("y", "FP64")]))
    write("too_few", made.Identity(), made.config(x, [made.tensor("OUTPUT__0"), made.tensor("OUTPUT__3")]))
    write("scalar", made.Scalar(), made.config(x, [made.tensor("y")]))
    write("number", made.Number(), made.config(x, [made.tensor("y")]))
    write("network", made.Network(), made.config(x, [made.tensor("y")]))
    server = serve().ready()
    texts = {
        "other_type": "configuration expects datatype TYPE_FP64 for output 'y', model provides TYPE_FP32",
        "too_few": "The output OUTPUT__3 in the model configuration refers to an output index which doesn't exist. "
        "This model has 1 outputs",
        "scalar": "output 'y' is a scalar which is not supported.",
        "number": "output must be of type Tensor, List\\[str\\] or Tuple containing one of these two types.",
        "network": "PyTorch execute failure: (?s:.*)mat1 and mat2 shapes cannot be multiplied \\(3x4 and 64x32\\)",
    }
    for name, text in texts.items():
        with pytest.raises(InferenceServerException, match=text) as told:
            ask(server, name, x=A)
        wanted = "INTERNAL" if name == "network" else "INVALID_ARGUMENT"
        assert told.value.status() == f"StatusCode.{wanted}", name
    assert ask(server, "network", x=np.zeros((2, 64), np.float32))["y"].shape == (2, 10), "it goes on serving"


REFUSED = {
    "count": (made.AddSub(), [made.tensor("a")], SUMS,
              "configuration expects 1 inputs, model provides 2: a, b"),
    "index": (made.AddSub(), [made.tensor("X__0"), made.tensor("X__2")], SUMS,
              "input 'X__2' of model 'index' is argument 2 by its name, and the model takes 2, from 0: a, b"),
    "twice": (made.AddSub(), [made.tensor("X__0"), made.tensor("Y__0")], SUMS, "two inputs of model 'twice' are one"),
    "text": (made.Identity(), [made.tensor("x", "STRING")], SUMS[:1],
             "unsupported datatype TYPE_STRING for input 'x' for model 'text': argument 'x' of its TorchScript is a"),
    "no_text": (made.Words(), [made.tensor("words"), made.tensor("times")], SUMS,
                "unsupported datatype TYPE_FP32 for input 'words'"),
    "dims": (made.Words(), [made.tensor("words", "STRING"), made.tensor("times")], SUMS,
             "Triton only supports 1 dimensional List of String as input for 'words' for model 'dims': write reshape"),
    "optional": (made.Identity(), [made.tensor("x", more="optional: true")], SUMS[:1],
                 "'optional' is set to true for input 'x' while the backend model doesn't support optional input"),
}  # fmt: skip


def test_configurations_that_do_not_fit_are_refused(serve, write):
    for name, (module, inputs, outputs, _) in REFUSED.items():
        write(name, module, made.config(inputs, outputs))
    server = serve("--exit-on-error=false").ready()
    for name, (*_, text) in REFUSED.items():
        assert text in made.reason(server, name)


SEQUENCE = """
backend: "pytorch" max_batch_size: 4
input [ { name: "X__0" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "TOTAL__0" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "WHO__1" data_type: TYPE_UINT64 dims: [ 1 ] } ]
sequence_batching {
  STRATEGY
  control_input [
    { name: "START__1" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID__2" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
  ]
  state [ { input_name: "SUM_IN__3" output_name: "SUM_OUT__2" data_type: TYPE_FP32 dims: [ 1 ] } ]
}
"""


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_sequences_with_controls_and_state(serve, write, connect, strategy):
    write("sums", made.Accumulator(), SEQUENCE.replace("STRATEGY", strategy))
    client = connect(serve().ready(), grpcclient)

    def send(sequence, value, **flags):
        tensor = grpcclient.InferInput("X__0", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.full((1, 1), value, np.float32))
        answer = client.infer("sums", [tensor], sequence_id=sequence, **flags)
        return [answer.as_numpy(name).item() for name in ("TOTAL__0", "WHO__1")]

    assert send(7, 1, sequence_start=True) == [1, 7]
    assert send(8, 10, sequence_start=True) == [10, 8]
    assert send(7, 2) == [3, 7] and send(8, 20) == [30, 8]
    assert send(7, 3, sequence_end=True) == [6, 7]
    assert send(7, 5, sequence_start=True) == [5, 7], "state begins anew"


def test_state_needs_names_with_indices(serve, write):
    config = SEQUENCE.replace("STRATEGY", "direct { }")
    write("bare_output", made.Accumulator(), config.replace("TOTAL__0", "TOTAL"))
    write("bare_control", made.Accumulator(), config.replace("START__1", "START"))
    server = serve("--exit-on-error=false").ready()
    whose = "PyTorch model '{0}' is using sequence batching with state but {1} does not follow the <name>__<index>"
    assert whose.format("bare_output", "output 'TOTAL'") in made.reason(server, "bare_output")
    assert whose.format("bare_control", "input 'START'") in made.reason(server, "bare_control")
