"""Registering and unregistering count in the order in which they come, whatever the driver has done by then."""

from __future__ import annotations

import base64
import http.client
import json
import socket

import numpy as np
import pytest

from tests.gpu.gpu_models import CONFIG
from tests.system.helpers import ADD_ONE, SECONDS_MAX

NBYTES = 4096
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
FAMILY = "/v2/cudasharedmemory"


def request(path, body=None):
    """Bytes of one: a POST where there is a body."""
    text = b"" if body is None else json.dumps(body).encode()
    method = "GET" if body is None else "POST"
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def answers(port, *requests):
    """Of requests that are sent in one write on one connection: (status, JSON) of each."""
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection, connection.makefile("rb") as file:
        connection.sendall(b"".join(requests))
        return [answer(file) for _ in requests]


def answer(file):
    """The next one."""
    status = int(file.readline().split()[1])
    text = file.read(int(http.client.parse_headers(file)["Content-Length"]))
    return status, json.loads(text) if text else None


@pytest.fixture
def served(stand_in, serve, write_model):
    """The HTTP port of a server with a model that adds one."""
    write_model("m", ADD_ONE, CONFIG)
    return serve("--allow-client-shm=true").ready().port


@pytest.fixture
def registers(export):
    """The request that registers new memory, with VALUES, as `given`."""
    memory = export(NBYTES)
    memory.write(VALUES.tobytes())
    handle = {"b64": base64.b64encode(memory.handle).decode()}
    return request(f"{FAMILY}/region/given/register", {"raw_handle": handle, "device_id": 0, "byte_size": NBYTES})


def test_a_request_behind_a_registration_finds_the_region(served, registers):
    given = {"shared_memory_region": "given", "shared_memory_byte_size": NBYTES}
    infer = {"inputs": [{"name": "A", "shape": [NBYTES // 4], "datatype": "FP32", "parameters": given}]}
    registered, inferred = answers(served, registers, request("/v2/models/m/infer", infer))
    assert registered == (200, None)
    assert inferred[0] == 200, inferred
    assert inferred[1]["outputs"][0]["data"] == (VALUES + 1).tolist()


@pytest.mark.parametrize("region", ["/region/given", ""])
def test_what_is_unregistered_behind_its_registration_is_gone(served, registers, region):
    told = answers(served, registers, request(f"{FAMILY}{region}/unregister", {}), request(f"{FAMILY}/status"))
    assert told == [(200, None), (200, None), (200, [])]
    assert answers(served, request(f"{FAMILY}/status")) == [(200, [])]


def test_a_region_is_registered_anew_in_one_write(served, registers):
    again = request(f"{FAMILY}/region/given/unregister", {}), registers, request(f"{FAMILY}/status")
    told = answers(served, registers, *again)
    listed = [{"name": "given", "device_id": 0, "byte_size": NBYTES}]
    assert told == [(200, None), (200, None), (200, None), (200, listed)]
