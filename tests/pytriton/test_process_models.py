"""Models whose instances are worker processes."""

import os

import numpy as np
import pytest

from tests.pytriton.process_callables import Adder, OnlyHere, calls_before, give_up, where
from tests.pytriton.served import ONE, A, add, http, model
from tests.waiting import wait_until
from tisfast.pytriton.client import FuturesModelClient, ModelClient
from tisfast.pytriton.client.exceptions import PyTritonClientInferenceServerError
from tisfast.pytriton.exceptions import (
    PyTritonInvalidOperationError,
    PyTritonRuntimeError,
    PyTritonValidationError,
)
from tisfast.pytriton.model_config import ModelConfig
from tisfast.pytriton.model_config.common import ModelWarmup, WarmupInput
from tisfast.pytriton.triton import RemoteTriton


def test_a_callable_runs_in_processes_of_its_own(triton):
    running = triton(model("m", where, [A], processes=2))
    assert running.is_alive()
    with FuturesModelClient(http(running), "m") as client:
        futures = [client.infer_sample(ONE) for _ in range(20)]
        pids = {int(future.result()["o"][0]) for future in futures}
    assert os.getpid() not in pids
    with ModelClient(http(running), "m") as client:
        assert [group["count"] for group in client._model.config()["instance_group"]] == [2]


def test_what_cannot_be_pickled_is_told(triton):
    running = triton()
    with pytest.raises(PyTritonValidationError, match="'m' has processes=2, and its callable cannot be pickled"):
        running.bind(**model("m", lambda requests: [], processes=2))
    with pytest.raises(PyTritonValidationError, match="has 2 callables and processes=2; give one callable"):
        running.bind(**model("m", [add, add], processes=2))
    with pytest.raises(PyTritonValidationError, match="processes is -1"):
        running.bind(**model("m", add, processes=-1))


def test_a_decorated_method_runs_in_processes(triton):
    running = triton(model("m", Adder(2).infer, [A], processes=1))
    with ModelClient(http(running), "m") as client:
        assert client.infer_sample(ONE)["o"].tolist() == [3]


def test_what_was_not_loaded_may_be_bound_again_and_a_name_has_one_version(triton):
    running, function = triton(), OnlyHere()
    with pytest.raises(PyTritonRuntimeError, match="made in process"):
        running.bind(**model("m", function, [A], processes=1))
    function.forgiving = True
    running.bind(**model("m", function, [A], processes=1))
    with pytest.raises(PyTritonInvalidOperationError, match="'m' is served by processes already, with another version"):
        running.bind(**model("m", function, [A], processes=1, model_version=2))
    with ModelClient(http(running), "m") as client:
        assert client.infer_sample(ONE)["o"].tolist() == [1]


def test_only_the_own_server_has_processes(triton, tmp_path):
    remote = RemoteTriton(http(triton()), workspace=tmp_path / "remote")
    with remote, pytest.raises(PyTritonInvalidOperationError, match="only the server of this program"):
        remote.bind(**model("m", add, processes=1))


def test_processes_are_warmed_up_before_the_first_request(triton):
    warmup = ModelWarmup("w", 1, {"a": WarmupInput(np.float32, (1,), zero_data=True)}, count=3)
    running = triton(model("m", calls_before, [A], config=ModelConfig(model_warmup=[warmup]), processes=1))
    with ModelClient(http(running), "m") as client:
        assert client.infer_sample(ONE)["o"].tolist() == [3]


def test_an_error_of_a_process_that_nobody_recovers_from_stops_the_server(triton, caplog):
    running = triton(model("m", give_up, [A], processes=1), model("other", calls_before, [A], processes=1))
    with (
        ModelClient(http(running), "m") as client,
        pytest.raises(PyTritonClientInferenceServerError, match="out of memory"),
    ):
        client.infer_sample(ONE)
    wait_until(lambda: not running.is_connected())
    assert not running.is_alive()
    assert "everything is stopped: out of memory for good" in caplog.text
