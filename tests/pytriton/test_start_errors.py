"""Servers that do not start say it in PyTriton's classes and by its fields."""

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.pytriton.served import ONE, A, add, http, model, server
from tests.waiting import wait_until
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError, PyTritonValidationError
from tisfast.pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from tisfast.pytriton.model_config.common import ModelWarmup, QueuePolicy, WarmupInput
from tisfast.pytriton.triton import Triton, TritonSecurityConfig

F = np.float32


def test_a_port_that_is_taken_is_told_by_its_field(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        made = server(workspace=tmp_path / "work", http_address="127.0.0.1", http_port=taken.getsockname()[1])
        with pytest.raises(PyTritonRuntimeError, match=r"choose a port with TritonConfig\.http_port$"):
            made.run()
        made.stop()


def test_a_field_that_cannot_be_is_told_by_its_name(tmp_path):
    made = server(workspace=tmp_path / "work", metrics_interval_ms="often")
    with pytest.raises(PyTritonValidationError, match=r"TritonConfig\.metrics_interval_ms.*often"):
        made.run()
    made.stop()


def test_an_address_that_cannot_be_opened_can_never_be(tmp_path):
    made = server(workspace=tmp_path / "work", http_address="203.0.113.1")
    with pytest.raises(PyTritonValidationError, match=r"cannot be opened: .*; see TritonConfig\.http_address$"):
        made.run()
    made.stop()


@pytest.mark.parametrize("period", [float("nan"), 0, -1, "x", None])
def test_a_period_that_is_none_is_refused(tmp_path, period):
    made = server(workspace=tmp_path / "work")
    with pytest.raises(PyTritonValidationError, match=r"^monitoring_period_s must be a number of .* above 0, not "):
        made.serve(period)
    assert not made.is_connected()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model_name": 5}, "model_name must be text, not 5"),
        ({"model_version": "x"}, "model_version must be a whole number, not 'x'"),
        ({"model_version": True}, "model_version must be a whole number, not True"),
        ({"inputs": 3}, "inputs must be a list of Tensors, not 3"),
        ({"inputs": A}, "inputs must be a list of Tensors, not Tensor(shape=(1,)"),
        ({"outputs": ["o"]}, "outputs[0] must be Tensor or TensorSpec, not 'o'"),
        ({"inputs": [Tensor(shape=3, dtype=F)]}, "inputs[0].shape must be a list of whole numbers, not 3"),
        ({"inputs": [A, Tensor(shape=(1.5,), dtype=F)]}, "inputs[1].shape[0] must be a whole number, not 1.5"),
        ({"inputs": [Tensor(shape=(1,), dtype=F, name=3)]}, "inputs[0].name must be text or None, not 3"),
        ({"config": {"decoupled": True}}, "config must be ModelConfig or None, not {'decoupled': True}"),
        ({"config": ModelConfig(max_batch_size="8")}, "config.max_batch_size must be a whole number, not '8'"),
        ({"config": ModelConfig(decoupled="no")}, "config.decoupled must be True or False, not 'no'"),
        ({"config": ModelConfig(batcher={})}, "config.batcher must be DynamicBatcher or None, not {}"),
        (
            {"config": ModelConfig(batcher=DynamicBatcher(preferred_batch_size=4))},
            "config.batcher.preferred_batch_size must be a list of whole numbers or None, not 4",
        ),
        (
            {"config": ModelConfig(batcher=DynamicBatcher(default_queue_policy=QueuePolicy("DELAY")))},
            "config.batcher.default_queue_policy.timeout_action must be one of TimeoutAction.REJECT, "
            "TimeoutAction.DELAY, not 'DELAY'",
        ),
        (
            {"config": ModelConfig(batcher=DynamicBatcher(priority_queue_policy={"x": QueuePolicy()}))},
            "a key of config.batcher.priority_queue_policy must be a whole number, not 'x'",
        ),
        (
            {"config": ModelConfig(model_warmup=[ModelWarmup("w", 1, {"a": WarmupInput(F, 3, True)}, 1)])},
            "config.model_warmup[0].inputs['a'].shape must be a list of whole numbers, not 3",
        ),
        ({"strict": "yes"}, "strict must be True or False, not 'yes'"),
        ({"processes": 1.5}, "processes must be a whole number, not 1.5"),
        ({"trace_config": "mode=opentelemetry"}, "trace_config must be a list of texts or None, not 'mode="),
    ],
)
def test_bind_refuses_other_types_by_name_and_value(tmp_path, given, told):
    made = server(workspace=tmp_path / "work")
    with pytest.raises(PyTritonValidationError, match=f"^{re.escape(told)}"):
        made.bind(**(model("m", add) | given))


def test_a_dtype_of_none_is_not_taken_for_float64(tmp_path, triton):
    with pytest.raises(PyTritonBadParameterError, match="Tensor `INPUT_1` has dtype None"):
        triton(workspace="other").bind(**model("m", add, inputs=[Tensor(shape=(1,), dtype=None)]))


def test_numbers_of_numpy_are_whole_numbers(triton):
    one = np.int64(1)
    batcher = DynamicBatcher(preferred_batch_size=[one], max_queue_delay_microseconds=one)
    config = ModelConfig(max_batch_size=np.int32(8), batcher=batcher)
    inputs = [Tensor(name="a", shape=np.array([1]), dtype=F)]
    running = triton(model("m", add, inputs=inputs, config=config))
    with ModelClient(http(running), "m") as client:
        assert client.infer_sample(ONE)["o"].tolist() == [1]
        assert client.model_config.max_batch_size == 8


@pytest.mark.parametrize("name", ["config", "workspace", "triton_lifecycle_policy", "security_config"])
def test_triton_refuses_what_is_none_of_its_parts(name):
    with pytest.raises(PyTritonValidationError, match=f"^{name} must be .* or None, not 3$"):
        Triton(**{name: 3})


def test_endpoints_are_a_list_of_texts():
    with pytest.raises(PyTritonValidationError, match="restricted_endpoints must be a list of texts or None, not 'tr"):
        TritonSecurityConfig(restricted_endpoints="trace")


def test_serve_may_look_as_rarely_as_it_likes(tmp_path):
    made = server(workspace=tmp_path / "work")
    made.bind(**model("m", add))
    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(made.serve, float("inf"))
        wait_until(lambda: made.is_connected() or serving.done())
        made.stop()
        assert serving.result() is None
