"""Triton's test hook of its gRPC answers, by a real client."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.system.helpers import SECONDS_MAX

HOOK = "TRITONSERVER_SERVER_DELAY_GRPC_RESPONSE_SEC"


def test_answers_of_calls_that_are_no_inferences_wait(write_model, serve, connect, monkeypatch):
    write_model("one")
    monkeypatch.setenv(HOOK, "60")
    client = connect(serve().ready(), grpcclient)
    for call in (
        client.is_server_live,
        client.is_server_ready,
        client.get_server_metadata,
        client.get_model_repository_index,
        client.get_system_shared_memory_status,
        lambda **given: client.is_model_ready("one", **given),
        lambda **given: client.get_model_metadata("nobody", **given),  # an error waits as well
    ):
        with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
            call(client_timeout=0.1)
    tensor = grpcclient.InferInput("A", [1], "FP32").set_data_from_numpy(np.array([1], np.float32))
    assert client.infer("one", [tensor]).as_numpy("B") == [2]


def test_an_answer_comes_in_the_end(write_model, serve, connect, monkeypatch):
    write_model("one")
    monkeypatch.setenv(HOOK, "1")
    client = connect(serve().ready(), grpcclient)
    assert client.is_model_ready("one", client_timeout=SECONDS_MAX)
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nobody' is not found"):
        client.get_model_metadata("nobody", client_timeout=SECONDS_MAX)
