"""What pb_utils takes: the arguments that Triton 2.51 was seen to take, and words for what it does not."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import triton_python_backend_utils as pb

A = pb.Tensor("A", np.zeros(1, np.float32))


def request(**options):
    return pb.InferenceRequest(**{"inputs": [], "requested_output_names": [], "model_name": "m", **options})


@pytest.mark.parametrize("name", [b"m", bytearray(b"m"), np.bytes_(b"m"), np.str_("m"), np.array([b"m"], object)[0]])
def test_names_may_be_bytes(name):
    made = request(model_name=name, request_id=name, requested_output_names=[name])
    assert (made._model_name, made.request_id(), made.requested_output_names()) == ("m", "m", {"m"})
    assert pb.Tensor(name, np.zeros(1)).name() == pb.Tensor.from_dlpack(name, np.zeros(1)).name() == "m"
    assert pb.TritonError(name).message() == "m"
    assert type(made._model_name) is type(pb.Tensor(name, np.zeros(1)).name()) is str
    pb.Logger.log_info(name)
    pb.Logger.log(name, pb.Logger.WARNING)
    pb.MetricFamily(name=name, description=name, kind=pb.MetricFamily.GAUGE).Metric()


@pytest.mark.parametrize("names", [np.array(["a", "b"]), np.array([b"a", b"b"]), deque(["a", b"b"]), ("a", "b")])
def test_lists_may_be_other_sequences(names):
    assert request(requested_output_names=names).requested_output_names() == {"a", "b"}


def test_inputs_may_be_an_array():
    tensors = np.empty(2, object)
    tensors[:] = [A, A]
    assert request(inputs=tensors).inputs() == request(inputs=deque([A, A])).inputs() == [A, A]


@pytest.mark.parametrize("number", [np.int64(5), np.uint32(5), np.array(5), 5])
def test_numbers_may_be_of_numpy(number):
    made = request(model_version=number, flags=number, timeout=number)
    made.set_flags(number)
    assert (made._model_version, made.flags(), made.timeout()) == (5, 5, 5)
    assert request(correlation_id=np.int64(7)).correlation_id() == 7
    assert request(correlation_id=True).correlation_id() == 1


def test_the_order_of_arguments_is_tritons():
    made = pb.InferenceRequest("id", 5, [A], ["Y"], "m", 2, 1, 9)
    assert (made.request_id(), made.correlation_id(), made.inputs(), made._model_name) == ("id", 5, [A], "m")
    assert (made._model_version, made.flags(), made.timeout()) == (2, 1, 9)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pb.InferenceRequest("id"), "inputs, requested_output_names, model_name must be given"),
        (lambda: request(model_name=3), "InferenceRequest: model_name must be a str or bytes, not an object of type"),
        (lambda: request(model_name=b"\xff"), "InferenceRequest: model_name is not UTF-8"),
        (lambda: request(requested_output_names="ab"), "requested_output_names must be a list, or another sequence"),
        (lambda: request(requested_output_names=[3]), "an item of requested_output_names must be a str or bytes"),
        (lambda: request(inputs=iter([A])), "inputs must be a list, or another sequence"),
        (lambda: request(timeout=1.5), "timeout must be an integer, not an object of type float"),
        (lambda: request(model_version="1"), "model_version must be an integer, not an object of type str"),
        (lambda: request(preferred_memory=1), "preferred_memory must be a PreferredMemory, not an object of type int"),
        (lambda: pb.TritonError(None), "TritonError: message must be a str or bytes, not None"),
        (lambda: pb.TritonError("a", 1), "TritonError: code must be one of TritonError's codes"),
        (lambda: pb.Logger.log_info(3), r"Logger.log\(\): message must be a str or bytes"),
        (lambda: pb.Logger.log("a", "INFO"), r"Logger.log\(\): level must be one of Logger's levels"),
        (lambda: pb.is_model_ready("m", 1), r"is_model_ready\(\): model_version must be a str or bytes"),
        (lambda: pb.load_model("m", files=[]), r"load_model\(\): files must be a dict"),
        (lambda: pb.unload_model("m", "yes"), r"unload_model\(\): unload_dependents must be an integer"),
    ],
)
def test_what_is_no_such_thing_is_said(call, text):
    with pytest.raises(TypeError, match=text):
        call()
