"""Regions of one's own: both protocols take the same arguments, and refuse the others before anything is sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from tests.unused_ports import closed_port
from tisfast.client import AsyncClient, BadRequest, Client, TisError

KEY = f"/region-arguments-{os.getpid()}"
HANDLE = bytes(range(64))
NBYTES_MAX = (1 << 64) - 1
NBYTES = [
    ("4096", r"region 'r': nbytes='4096' must be an int from 1 to 18446744073709551615"),
    (4096.0, r"region 'r': nbytes=4096.0 must be an int from 1"),
    (True, r"region 'r': nbytes=True must be an int from 1"),
    (None, r"region 'r': nbytes=None must be an int from 1"),
    (np.bool_(1), r"region 'r': nbytes=.*True.* must be an int from 1"),
    (0, r"region 'r': nbytes=0 must be an int from 1"),
    (-1, r"region 'r': nbytes=-1 must be an int from 1"),
    (NBYTES_MAX + 1, r"region 'r': nbytes=18446744073709551616 must be an int from 1"),
]
NAMES = [
    ("", "name='' names no region: give it a name"),
    (None, "name=None must be a text: a name of the region that no other one has"),
    (7, "name=7 must be a text"),
    (b"r", "name=b'r' must be a text"),
    ("\ud800", r"name='\\ud800' cannot be sent .*: give a name"),
]
SYSTEM = [
    *[({"name": value}, said) for value, said in NAMES],
    *[({"nbytes": value}, said) for value, said in NBYTES],
    ({"key": 7}, r"region 'r': key=7 must be a text: the name of a file in /dev/shm, such as '/tensors'"),
    ({"key": None}, r"region 'r': key=None must be a text"),
    ({"key": b"/x"}, r"region 'r': key=b'/x' must be a text"),
    ({"key": Path("/x")}, r"region 'r': key=PosixPath\('/x'\) must be a text"),
    ({"key": "\ud800"}, r"region 'r': key='\\ud800' cannot be sent .*: give the name of a file in /dev/shm"),
    ({"offset": "0"}, r"region 'r': offset='0' must be an int from 0 to 18446744073709551615: where in the file"),
    ({"offset": 0.0}, r"region 'r': offset=0.0 must be an int from 0"),
    ({"offset": False}, r"region 'r': offset=False must be an int from 0"),
    ({"offset": None}, r"region 'r': offset=None must be an int from 0"),
    ({"offset": -1}, r"region 'r': offset=-1 must be an int from 0"),
    ({"offset": NBYTES_MAX + 1}, r"region 'r': offset=18446744073709551616 must be an int from 0"),
]
CUDA = [
    *[({"name": value}, said) for value, said in NAMES],
    *[({"nbytes": value}, said) for value, said in NBYTES],
    ({"device": "0"}, r"region 'r': device='0' must be an int from 0 to 1023: the GPU's number, counted from 0"),
    ({"device": 0.0}, r"region 'r': device=0.0 must be an int from 0"),
    ({"device": False}, r"region 'r': device=False must be an int from 0"),
    ({"device": None}, r"region 'r': device=None must be an int from 0"),
    ({"device": -1}, r"region 'r': device=-1 must be an int from 0"),
    ({"device": 1024}, r"region 'r': device=1024 must be an int from 0"),
    ({"handle": "h" * 64}, r"region 'r': handle='hhh.* is a str; it must be bytes, a bytearray or a memoryview of 64"),
    ({"handle": None}, r"region 'r': handle=None is a NoneType; it must be bytes"),
    ({"handle": list(HANDLE)}, r"region 'r': handle=\[0, 1, .* is a list; it must be bytes"),
    ({"handle": b""}, r"region 'r': handle=b'' is 0 bytes; it must be .* of 64 bytes: what cudaIpcGetMemHandle gives"),
    ({"handle": bytes(88)}, r"region 'r': handle=b'.* is 88 bytes; .* base64: give base64.b64decode"),
    ({"handle": memoryview(bytes(256)).cast("I")}, r"region 'r': handle=<memory.* is 256 bytes; it must be"),
]
UNREGISTERED = [
    (None, r'name=None must be a text: the name that was registered, or "" for all regions'),
    (0, "name=0 must be a text"),
    ([], r"name=\[\] must be a text"),
    (b"", "name=b'' must be a text"),
    ("\ud800", r"name='\\ud800' cannot be sent"),
]


class Color(str, Enum):
    RED = "red"


@pytest.fixture
def file() -> Iterator[Path]:
    """8192 bytes of shared memory."""
    path = Path("/dev/shm", KEY[1:])
    path.write_bytes(bytes(8192))
    yield path
    path.unlink()


def of_nobody(protocol: str) -> str:
    """A URL that nobody listens at: what is refused is refused before a connection is made."""
    return f"{protocol}://127.0.0.1:{closed_port()}"


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(("given", "said"), SYSTEM)
def test_a_system_region_that_cannot_be(protocol, given, said):
    with Client(of_nobody(protocol)) as client, pytest.raises(BadRequest, match=said):
        client.register_region(**{"name": "r", "key": KEY, "nbytes": 4096, **given})


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(("given", "said"), CUDA)
def test_a_cuda_region_that_cannot_be(protocol, given, said):
    with Client(of_nobody(protocol)) as client, pytest.raises(BadRequest, match=said):
        client.register_cuda_region(**{"name": "r", "handle": HANDLE, "nbytes": 4096, **given})


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(("name", "said"), UNREGISTERED)
def test_who_has_lost_the_name_does_not_unregister_all(protocol, name, said):
    with Client(of_nobody(protocol)) as client:
        for unregister in (client.unregister_region, client.unregister_cuda_region):
            with pytest.raises(BadRequest, match=said):
                unregister(name)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_asynchronous_client_refuses_the_same(protocol):
    async def refused() -> None:
        async with AsyncClient(of_nobody(protocol)) as client:
            with pytest.raises(BadRequest, match="device='0' must be an int"):
                await client.register_cuda_region("r", HANDLE, 4096, device="0")
            with pytest.raises(BadRequest, match="offset='0' must be an int"):
                await client.register_region("r", KEY, 4096, offset="0")

    asyncio.run(refused())


@pytest.mark.parametrize(
    "given",
    [
        {"nbytes": np.int64(4096), "offset": np.uint8(16)},
        {"nbytes": np.uint64(8192)},
        {"key": np.str_(KEY)},
        {"name": np.str_("r")},
        {"name": Color.RED},
        {"name": "a/b%2 é"},
        {"name": "é" * 2048},
    ],
)
def test_a_region_is_registered_as_it_was_given(client, file, given):
    wanted = {"name": "r", "key": KEY, "nbytes": 4096, "offset": 0, **given}
    client.register_region(**wanted)
    (found,) = client.regions()
    name = str.__str__(wanted["name"])
    wanted = {"name": name, "key": KEY, "offset": wanted["offset"], "byte_size": wanted["nbytes"]}
    assert {key: found[key] for key in wanted} == wanted
    client.unregister_region(given.get("name", "r"))
    assert client.regions() == []


@pytest.mark.parametrize("handle", [HANDLE, bytearray(HANDLE), memoryview(HANDLE), memoryview(HANDLE).cast("I")])
@pytest.mark.parametrize("device", [0, np.int64(0), 1023])
def test_a_cuda_region_that_can_be_is_sent(client, handle, device):
    """It is no memory's, so the server refuses it; what it says first is that there is no GPU."""
    with pytest.raises(TisError, match="'r', GPUs not supported|invalid args .region 'r'"):
        client.register_cuda_region("r", handle, np.int64(4096), device)
