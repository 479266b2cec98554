"""What a model may have executed is not asked again by itself: the server marks such errors, over both protocols."""

from __future__ import annotations

import asyncio
import socket

import numpy as np
import pytest

from tests.client.helpers import answering, place_of
from tests.system.helpers import ADD_ONE
from tisfast.client import AsyncClient, Client, ConnectionLost, Retries, TimedOut, Unavailable

A = np.ones(1, np.float32)
AT_ONCE = Retries(count=2, pause_seconds=0.001)
NOTING = """open("{note}", "a").write("x")
        """
DYING = ADD_ONE.replace("return a + 1", NOTING + "import os; os.kill(os.getpid(), 9)")
SAYS_LATER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open("{note}", "a").write("x")
        error = pb_utils.TritonError("later", pb_utils.TritonError.UNAVAILABLE)
        return [pb_utils.InferenceResponse(error=error) for _ in requests]
"""
ENSEMBLE = """
platform: "ensemble"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "m" model_version: -1 input_map { key: "A" value: "A" } output_map { key: "B" value: "B" } } ] }
"""


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("code", [DYING, SAYS_LATER])
def test_what_was_executed_is_not_asked_again(serve, write_model, connect, tmp_path, protocol, code):
    note = tmp_path / "note"
    write_model("m", code.replace("{note}", str(note)))
    place = place_of(serve().ready())
    url = getattr(place, protocol)
    with pytest.raises(Unavailable) as raised:
        connect(url, retries=AT_ONCE).model("m")(A)
    assert note.read_text() == "x" and raised.value.facts["executed"] is True

    async def awaited():
        async with AsyncClient(url, retries=AT_ONCE) as client:
            await client.model("m")(A)

    with pytest.raises(Unavailable):
        asyncio.run(awaited())
    assert note.read_text() == "xx"
    place.server.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_an_ensemble_was_executed_where_a_step_was(serve, write_model, connect, tmp_path, protocol):
    note = tmp_path / "note"
    write_model("m", DYING.replace("{note}", str(note)))
    write_model("e", "", ENSEMBLE)
    place = place_of(serve().ready())
    with pytest.raises(Unavailable, match="in ensemble 'e'") as raised:
        connect(getattr(place, protocol), retries=AT_ONCE).model("e")(A)
    assert note.read_text() == "x" and raised.value.facts["executed"] is True
    place.server.end()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_no_model_had_carries_no_mark(protocol, place):
    with Client(getattr(place, protocol), retries=0) as client:
        model = client.model("add_one")
        model.metadata()
        client.unload("add_one")
        try:
            with pytest.raises(Exception, match="not at ready state|unknown model") as raised:
                model(A)
        finally:
            client.load("add_one")
        assert "executed" not in raised.value.facts


def proxy(status: bytes):
    """One that answers a gRPC call by an HTTP status, as nginx does when its server has gone."""

    def behave(connection: socket.socket) -> None:
        data = b""
        while b"\x00\x01" not in data[60:]:  # the preface, settings, and a HEADERS frame or more
            data += connection.recv(65536)
        block = b"\x08\x03" + status
        head = len(block).to_bytes(3, "big") + b"\x01\x05\x00\x00\x00\x01"
        connection.sendall(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + head + block)
        while connection.recv(65536):
            pass

    return behave


@pytest.mark.parametrize(("status", "error"), [(b"502", ConnectionLost), (b"504", TimedOut)])
def test_a_proxy_that_had_sent_a_grpc_call_on_is_not_asked_again(status, error):
    with (
        answering(proxy(status)) as address,
        Client(f"grpc://{address}", retries=AT_ONCE) as client,
        pytest.raises(error, match=f"HTTP status {status.decode()}"),
    ):
        client.live()
