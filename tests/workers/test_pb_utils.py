"""triton_python_backend_utils outside the server: real classes, as a model's own unit tests use them."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest
import triton_python_backend_utils as pb

from tests.workers.driver import WORKERS


def request(**options):
    return pb.InferenceRequest(**{"inputs": [], "requested_output_names": [], "model_name": "m", **options})


def test_a_model_can_be_tested_by_hand():
    class Double:
        def execute(self, requests):
            arrays = [pb.get_input_tensor_by_name(r, "IN").as_numpy() for r in requests]
            return [pb.InferenceResponse([pb.Tensor("OUT", 2 * a)]) for a in arrays]

    asked = request(inputs=[pb.Tensor("IN", np.arange(3, dtype=np.float32))], requested_output_names=["OUT"])
    (answer,) = Double().execute([asked])
    assert pb.get_output_tensor_by_name(answer, "OUT").as_numpy().tolist() == [0, 2, 4]
    assert pb.get_output_tensor_by_name(answer, "NONE") is None and pb.get_input_tensor_by_name(asked, "NONE") is None


def test_numpy_is_not_imported_before_it_is_needed():
    code = "import sys; sys.path.append(sys.argv[1]); import triton_python_backend_utils; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code, str(WORKERS)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ---- Tensor


@pytest.mark.parametrize(
    ("dtype", "code"),
    [
        ("?", 1),
        ("u1", 2),
        ("u2", 3),
        ("u4", 4),
        ("u8", 5),
        ("i1", 6),
        ("i2", 7),
        ("i4", 8),
        ("i8", 9),
        ("f2", 10),
        ("f4", 11),
        ("f8", 12),
        ("O", 13),
        ("S3", 13),
    ],
)
def test_tensor_types(dtype, code):
    array = np.zeros((2, 3), dtype)
    tensor = pb.Tensor("T", array)
    assert (tensor.triton_dtype(), tensor.shape(), tensor.name(), tensor.is_cpu()) == (code, [2, 3], "T", True)
    assert tensor.as_numpy() is array


@pytest.mark.parametrize("array", [[1, 2], None, np.float32(3), "x"])
def test_tensor_wants_an_array(array):
    with pytest.raises(TypeError, match=r"wrap scalars and lists in numpy\.array"):
        pb.Tensor("T", array)


@pytest.mark.parametrize("dtype", ["c8", ">f4", "M8[s]", "U2"])
def test_tensor_refuses_types_that_triton_lacks(dtype):
    with pytest.raises(pb.TritonModelException, match="NumPy dtype is not supported"):
        pb.Tensor("T", np.zeros(3, dtype))


def test_tensor_names():
    with pytest.raises(pb.TritonModelException, match=r"^Tensor name cannot be an empty string\.$"):
        pb.Tensor("", np.zeros(3))
    with pytest.raises(TypeError, match="name must be a str or bytes, not None"):
        pb.Tensor(None, np.zeros(3))


# ---- DLPack


@pytest.mark.parametrize("dtype", ["?", "u1", "u8", "i1", "i8", "f2", "f4", "f8"])
def test_dlpack_there_and_back(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = pb.Tensor.from_dlpack("B", pb.Tensor("A", array).to_dlpack())
    assert tensor.as_numpy().dtype == array.dtype and np.array_equal(tensor.as_numpy(), array)
    assert np.shares_memory(tensor.as_numpy(), array) and tensor.as_numpy().flags.writeable


def test_numpy_takes_our_tensors_and_we_take_its():
    array = np.arange(4.0)
    assert np.shares_memory(np.from_dlpack(pb.Tensor("A", array)), array)
    assert np.shares_memory(pb.Tensor.from_dlpack("B", array).as_numpy(), array)
    assert pb.Tensor("A", array).__dlpack_device__() == (1, 0)


def test_dlpack_memory_lives_exactly_as_long_as_it_is_used():
    array = np.arange(1000.0)
    gone = weakref.ref(array)
    tensor = pb.Tensor.from_dlpack("B", pb.Tensor("A", array))
    view = tensor.as_numpy()[10:]
    del array, tensor
    gc.collect()
    assert gone() is not None and view[0] == 10
    del view
    gc.collect()
    assert gone() is None


def test_a_capsule_nobody_took_frees_its_tensor():
    array = np.arange(10.0)
    before = sys.getrefcount(array)
    capsule = pb.Tensor("A", array).to_dlpack()
    assert sys.getrefcount(array) > before
    del capsule
    assert sys.getrefcount(array) == before


def test_dlpack_refusals():
    with pytest.raises(pb.TritonModelException, match=r"^DLPack does not have support for string tensors\.$"):
        pb.Tensor("A", np.array([b"x"], dtype=object)).to_dlpack()
    with pytest.raises(pb.TritonModelException, match="DLPack tensor is not contiguous"):
        pb.Tensor.from_dlpack("A", np.zeros((2, 3)).T)
    with pytest.raises(pb.TritonModelException, match="must be a DLPack capsule"):
        pb.Tensor.from_dlpack("A", 3)
    with pytest.raises(pb.TritonModelException, match="empty string"):
        pb.Tensor.from_dlpack("", np.zeros(3))
    with pytest.raises(pb.TritonModelException, match="DLPack dtype is not supported"):
        pb.Tensor.from_dlpack("A", np.zeros(3, "c8"))
    capsule = pb.Tensor("A", np.zeros(3)).to_dlpack()
    pb.Tensor.from_dlpack("A", capsule)
    with pytest.raises(pb.TritonModelException, match="consumed before"):
        pb.Tensor.from_dlpack("A", capsule)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (), (1, 5, 1)])
def test_dlpack_of_odd_shapes(shape):
    array = np.ones(shape, np.float32)
    tensor = pb.Tensor.from_dlpack("B", pb.Tensor("A", array).to_dlpack())
    assert tensor.shape() == list(shape) and np.array_equal(tensor.as_numpy(), array)


# ---- requests and responses


def test_a_request_tells_what_it_was_made_of():
    made = request(
        requested_output_names=["a", "a"],
        request_id="r",
        correlation_id="c",
        flags=1,
        timeout=5,
        parameters={"k": True, "n": 1, "s": "x"},
    )
    assert (made.request_id(), made.correlation_id(), made.flags(), made.timeout()) == ("r", "c", 1, 5)
    assert made.requested_output_names() == {"a"} and made.parameters() == '{"k":true,"n":1,"s":"x"}'
    made.set_flags(3)
    assert made.flags() == 3 and made.is_cancelled() is False and made.trace().get_context() is None
    bare = request()
    assert (bare.request_id(), bare.correlation_id(), bare.parameters(), bare.inputs()) == ("", 0, "{}", [])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"inputs": None}, TypeError, "inputs must be a list, or another sequence, not None"),
        ({"inputs": [3]}, TypeError, "an item of inputs must be a Tensor, not an object of type int"),
        (
            {"inputs": [None]},
            pb.TritonModelException,
            "^Input tensor for request with id '' and model name 'm' should not be empty.$",
        ),
        ({"requested_output_names": [None]}, TypeError, "requested_output_names"),
        ({"model_name": None}, TypeError, "model_name"),
        ({"request_id": 3}, TypeError, "request_id"),
        ({"correlation_id": None}, TypeError, "correlation_id"),
        ({"correlation_id": 1.5}, pb.TritonModelException, "^Correlation ID must be integer or string$"),
        ({"correlation_id": -1}, pb.TritonModelException, "Correlation ID must be integer or string"),
        ({"timeout": -1}, TypeError, "timeout is -1"),
        ({"parameters": {"a": 1.5}}, pb.TritonModelException, "bool/int/str, found type <class 'float'>"),
        ({"parameters": {1: 1}}, pb.TritonModelException, "keys to have type str, found type <class 'int'>"),
        ({"parameters": 3}, pb.TritonModelException, "dict, got <class 'int'>"),
    ],
)
def test_wrong_request_arguments(options, error, text):
    with pytest.raises(error, match=text):
        request(**options)


def test_responses():
    tensor = pb.Tensor("A", np.zeros(3))
    good = pb.InferenceResponse(output_tensors=(tensor,), parameters={"k": 1})
    assert (good.has_error(), good.error(), good.output_tensors(), good.parameters()) == (
        False,
        None,
        [tensor],
        '{"k":1}',
    )
    bad = pb.InferenceResponse([], error=pb.TritonError("no", pb.TritonError.NOT_FOUND))
    assert bad.has_error() and (bad.error().message(), bad.error().code()) == ("no", pb.TritonError.NOT_FOUND)
    assert pb.TritonError("x").code() == pb.TritonError.INTERNAL == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((None,), TypeError, "a list of Tensor, which may be empty, not None"),
        (("ab",), TypeError, "a list of Tensor, which may be empty, not an object of type str"),
        (([None],), pb.TritonModelException, r"^Output tensor for inference response should not be empty\.$"),
        (([3],), TypeError, "an item of output_tensors must be a Tensor, not an object of type int"),
        (([], "text"), TypeError, r"error must be a TritonError, as TritonError\(message\), not an object of type str"),
        (([], None, {"k": [1]}), pb.TritonModelException, "found type <class 'list'>"),
    ],
)
def test_wrong_response_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        pb.InferenceResponse(*arguments)


def test_wrong_error_arguments():
    with pytest.raises(TypeError):
        pb.TritonError(None)
    with pytest.raises(TypeError):
        pb.TritonError("x", 3)


# ---- the rest


def test_byte_tensors_there_and_back():
    array = np.array([["é", b"\0b\0"], [3, ""]], dtype=object)
    raw = pb.serialize_byte_tensor(array)
    assert raw == b"\2\0\0\0\xc3\xa9\3\0\0\0\0b\0\1\0\0\x003\0\0\0\0"
    assert pb.deserialize_bytes_tensor(raw).tolist() == ["é".encode(), b"\0b\0", b"3", b""]
    assert len(pb.serialize_byte_tensor(array[:0])) == 0 and pb.serialize_byte_tensor(np.zeros(2)) is None
    assert pb.serialize_byte_tensor(np.array([b"ab", b"c"])) == b"\2\0\0\0ab\1\0\0\0c"
    with pytest.raises(pb.TritonModelException, match="ends at byte 5"):
        pb.deserialize_bytes_tensor(b"\5\0\0\0a")


def test_type_conversions_agree():
    for code, name in enumerate(pb.TRITON_STRING_TO_NUMPY, start=1):
        assert pb.numpy_to_triton_type(pb.triton_string_to_numpy(name)) == code
        assert np.dtype(pb.triton_to_numpy_type(code)) == np.dtype(pb.triton_string_to_numpy(name))
    assert pb.triton_to_numpy_type(14) is None and pb.numpy_to_triton_type(np.bytes_) == 13
    assert pb.triton_string_to_numpy("TYPE_STRING") is np.object_


def test_configuration_lookups():
    config = {"input": [{"name": "a"}], "output": [{"name": "b"}], "model_transaction_policy": {"decoupled": True}}
    assert (
        pb.get_input_config_by_name(config, "a") == {"name": "a"} and pb.get_output_config_by_name(config, "a") is None
    )
    assert pb.using_decoupled_model_transaction_policy(config) is True
    assert pb.using_decoupled_model_transaction_policy({}) is False


def test_logger_writes_to_standard_error_outside_the_server(capsys):
    pb.Logger.log_warn("careful")
    assert "WARN test_pb_utils.py:" in capsys.readouterr().err
    for wrong in (lambda: pb.Logger.log(3), lambda: pb.Logger.log("x", 3), pb.Logger):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: request().exec(), "^BLS is only supported during the 'execute' function.$"),
        (lambda: pb.load_model("m"), "^Failed to load model: .*Server not ready$"),
        (lambda: pb.unload_model("m"), "^Failed to unload model: .*Server not ready$"),
        (lambda: pb.is_model_ready("m"), "^Failed to check model readiness: .*Server not ready$"),
    ],
)
def test_what_needs_a_server_says_so(call, text):
    with pytest.raises(pb.TritonModelException, match=text):
        call()


# ---- ModelConfig (texts as the real 2.51 gives them)

CONFIG = """{"name": "m", "max_batch_size": 2,
"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [4], "optional": false}],
"output": [{"name": "Y", "data_type": "TYPE_INVALID", "dims": []}]}"""


def test_a_configuration_is_completed():
    config = pb.ModelConfig(CONFIG)
    config.set_max_batch_size(4)
    config.set_dynamic_batching()
    config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [4]})
    config.add_input({"name": "Z", "data_type": "TYPE_INT8", "dims": [1], "optional": True})
    config.add_output({"name": "Y", "data_type": "TYPE_FP16", "dims": [2]})
    config.set_model_transaction_policy({"decoupled": False})
    done = config.as_dict()
    assert (done["max_batch_size"], done["dynamic_batching"]) == (4, {})
    assert [i["name"] for i in done["input"]] == ["X", "Z"] and done["output"][0]["data_type"] == "TYPE_FP16"


PLACE = "in auto-complete-config function for model 'm'"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda c: c.set_max_batch_size(1),
            "configuration specified max_batch_size 2, but " + PLACE + " specified max_batch_size 1",
        ),
        (
            lambda c: c.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [4], "format": 1}),
            "input 'X' " + PLACE + " contains property other than 'name', 'data_type', 'dims' and 'optional'.",
        ),
        (
            lambda c: c.add_output({"name": "X", "data_type": "TYPE_FP32", "dims": [4], "optional": True}),
            "output 'X' " + PLACE + " contains property other than 'name', 'data_type' and 'dims'.",
        ),
        (
            lambda c: c.add_input({"data_type": "TYPE_FP32", "dims": [4]}),
            "input " + PLACE + " is missing 'name' property.",
        ),
        (lambda c: c.add_input({"name": "X", "dims": [4]}), "input 'X' " + PLACE + " is missing 'data_type' property."),
        (
            lambda c: c.add_output({"name": "X", "data_type": "TYPE_FP32"}),
            "output 'X' " + PLACE + " is missing 'dims' property.",
        ),
        (
            lambda c: c.add_input({"name": "X", "data_type": "TYPE_INT8", "dims": [4]}),
            "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'X', model provides "
            "TYPE_INT8",
        ),
        (
            lambda c: c.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [5]}),
            "model 'm', tensor 'X': the model expects dims [5] but the model configuration specifies dims [4]",
        ),
        (
            lambda c: c.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [4], "optional": True}),
            "model 'm', tensor 'X': the model expects optional True but the model configuration specifies optional "
            "False",
        ),
        (
            lambda c: c.set_model_transaction_policy({"other": 1}),
            "model transaction property " + PLACE + " contains property other than 'decoupled'.",
        ),
        (
            lambda c: (
                c.set_model_transaction_policy({"decoupled": True}),
                c.set_model_transaction_policy({"decoupled": False}),
            ),
            "trying to change decoupled property "
            + PLACE.replace(" function", "")
            + ", which is already set to 'True'.",
        ),
        (
            lambda c: (c.as_dict().update(sequence_batching={}), c.set_dynamic_batching()),
            "Configuration specified scheduling_choice as 'sequence_batching', but auto-complete-config function for "
            "model 'm' tries to set scheduling_choice as 'dynamic_batching'",
        ),
    ],
)
def test_conflicts_with_the_file(call, text):
    with pytest.raises(ValueError) as raised:
        call(pb.ModelConfig(CONFIG))
    assert str(raised.value) == text


def test_who_tests_a_model_may_patch_what_it_calls(monkeypatch):
    answer = pb.InferenceResponse([pb.Tensor("Y", np.ones(1, "f4"))])
    monkeypatch.setattr(pb.InferenceRequest, "exec", lambda self, decoupled=False: answer)
    monkeypatch.setattr(pb.InferenceResponse, "has_error", lambda self: True)
    monkeypatch.setattr(pb.Tensor, "as_numpy", lambda self: np.zeros(1))
    asked = pb.InferenceRequest(model_name="other", inputs=[], requested_output_names=["Y"])
    assert asked.exec() is answer and answer.has_error()
    assert pb.get_output_tensor_by_name(answer, "Y").as_numpy() == 0


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nothing_that_lies_in_the_servers_memory_is_copied_or_pickled(how):
    tensor = pb.Tensor("Y", np.ones(1, "f4"))
    for item in (tensor, request(), pb.InferenceResponse([tensor])):
        with pytest.raises(TypeError, match=f"cannot pickle '{type(item).__name__}' object"):
            how(item)
