"""Registering regions: the gate, the names, the families, the texts; over HTTP and as operations."""

from __future__ import annotations

import asyncio
import base64
import json
import os

import pytest

from tests.native.helpers import HostDevice, ShmFile
from tests.operations.helpers import Served, ask, registered, registry
from tisfast.errors import AlreadyExists, BadRequest, Internal, NotFound, Unavailable, Unsupported
from tisfast.limits import REGION_NAME_BYTES_MAX, REGIONS_MAX
from tisfast.native.cuda_driver import CudaMissing
from tisfast.native.cuda_faces import Unopened
from tisfast.operations.regions import ClientRegions
from tisfast.operations.routes import Routes
from tisfast.operations.service import Service

SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
NO_NUMBER = "attempt to access JSON non-unsigned-integer as unsigned-integer"
NATURAL = f"not a whole number from 0 to {2**64 - 1}"
GPU_NUMBER = "the number of the GPU that has the memory: 0 for the first one that the server sees"
B64 = "'raw_handle' is {\"b64\": a string, the handle's 64 bytes in base64}"
NO_HANDLE = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"


@pytest.fixture
def shm():
    with ShmFile(bytes(range(200))) as file:
        yield file


def http(regions):
    """A client: (method, path, body) to (status, answer)."""
    handler = Routes(Service(registry(Served()), server_id="t", server_version="0", regions=regions))

    def send(method, path, body=None):
        text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()

        async def handled():
            answer = handler.handle(ask(method, path), text)
            return await answer if isinstance(answer, asyncio.Future) else answer

        response = registered(handled)
        assert response.content_type == "application/json"
        return response.status, json.loads(response.body) if response.body else None

    return send


def cuda_fields(**values):
    """The body of a registration of memory that a HostDevice has as `a`."""
    encoded = base64.b64encode(b"a".ljust(64, b"\0")).decode()
    return {"raw_handle": {"b64": encoded}, "device_id": 0, "byte_size": 10, **values}


def says(text):
    return {"error": text}


# ---- operations


def test_what_is_registered_has_a_status(regions, shm):
    regions.register_system("b", shm.key, 0, 200)
    regions.register_system("a", shm.key[1:], 100, 50)
    listed = [
        {"name": "a", "key": shm.key[1:], "offset": 100, "byte_size": 50},
        {"name": "b", "key": shm.key, "offset": 0, "byte_size": 200},
    ]
    assert regions.system_status("") == listed
    assert regions.system_status("a") == listed[:1]
    assert regions.table.get("a").fetch(0, 3) == b"def"
    assert regions.cuda_status("") == []


def test_both_families_share_the_names_and_know_whose_is_whose(regions, device, shm):
    regions.register_system("s", shm.key, 0, 10)
    registered(regions.register_cuda, "c", device.handle("a"), 0, 10)
    assert regions.cuda_status("c") == [{"name": "c", "device_id": 0, "byte_size": 10}]
    with pytest.raises(AlreadyExists, match="shared memory region 's' already in manager"):
        registered(regions.register_cuda, "s", device.handle("a"), 0, 10)
    with pytest.raises(AlreadyExists, match="shared memory region 'c' already in manager"):
        regions.register_system("c", shm.key, 0, 10)
    with pytest.raises(NotFound, match="'s' is registered as system shared memory, not CUDA shared memory"):
        regions.cuda_status("s")
    with pytest.raises(NotFound, match="'c' is registered as CUDA shared memory, not system shared memory"):
        regions.system_status("c")
    with pytest.raises(NotFound, match="Unable to find system shared memory region: 'x'"):
        regions.system_status("x")
    with pytest.raises(NotFound, match="Unable to find cuda shared memory region: 'x'"):
        regions.cuda_status("x")


def test_unregistering_touches_its_own_family_only_and_takes_the_unknown(regions, device, shm):
    for name in "st":
        regions.register_system(name, shm.key, 0, 10)
    registered(regions.register_cuda, "c", device.handle("a"), 0, 10)
    registered(regions.unregister_cuda, "s")
    regions.unregister_system("c")
    regions.unregister_system("nobody")
    assert len(regions.table) == 3
    regions.unregister_system("")
    assert [each.name for each in regions.table.all()] == ["c"]
    assert device.open_count == 1
    registered(regions.unregister_cuda, "c")
    assert (len(regions.table), device.open_count) == (0, 0)


@pytest.mark.parametrize("key", ["", "/", "///"])
def test_a_key_needs_a_name(regions, key):
    with pytest.raises(BadRequest) as caught:
        regions.register_system("a", key, 0, 10)
    assert str(caught.value) == f"cannot register shared memory region 'a' - invalid shm key '{key}'"


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_the_prefix_of_tritons_own_regions_is_reserved(regions, slashes):
    with pytest.raises(BadRequest, match="as the key contains the reserved prefix"):
        regions.register_system("a", f"{slashes}triton_python_backend_shm_region_7", 0, 10)


@pytest.mark.parametrize(
    "key", ["/nobody_has_this", "..", "/.", "a/b", "/../etc/passwd", "/../dev/shm/x", "x" * 256, "a\0b", "é" * 128]
)
def test_only_files_in_dev_shm_itself_are_opened(regions, key):
    with pytest.raises(Internal) as caught:
        regions.register_system("a", key, 0, 10)
    assert str(caught.value).startswith(f"Unable to open shared memory region: '{key}' (region 'a': ")


def test_links_folders_and_pipes_are_not_opened(regions, shm):
    for make, why in (
        (lambda path: os.symlink("/etc/hosts", path), "symbolic links"),
        (os.mkdir, "directory"),
        (os.mkfifo, "not a regular file"),
    ):
        path = f"{shm.path}_other"
        make(path)
        try:
            with pytest.raises(Internal, match=why):
                regions.register_system("a", os.path.basename(path), 0, 10)
        finally:
            (os.rmdir if os.path.isdir(path) else os.unlink)(path)


def test_the_number_of_regions_and_the_length_of_names_are_bounded(regions, shm):
    with pytest.raises(BadRequest, match=f"its name has {REGION_NAME_BYTES_MAX + 1} bytes"):
        regions.register_system("x" * (REGION_NAME_BYTES_MAX + 1), shm.key, 0, 10)
    device = HostDevice(a=b"0123456789")
    full = ClientRegions(lambda: device, allowed=True)
    for i in range(REGIONS_MAX):
        registered(full.register_cuda, str(i), device.handle("a"), 0, 10)
    with pytest.raises(Unavailable, match=f"{REGIONS_MAX} regions are registered or being closed, which is the limit"):
        full.register_system("one more", shm.key, 0, 10)


@pytest.mark.parametrize("device_id", [-(2**63), -1, 1, 1024, 2**63 - 1])
@pytest.mark.parametrize("count", ["1 GPU", "2 GPUs"])
def test_a_device_that_is_not_there(regions, device, device_id, count):
    device.count = int(count[0])
    device_id += device.count - 1 if device_id == 1 else 0
    known = {1: "0", 2: "0 to 1"}[device.count]
    text = f"(region 'c': device_id is {device_id}, the server sees {count}, so it may be {known})"
    with pytest.raises(BadRequest) as refused:
        registered(regions.register_cuda, "c", device.handle("a"), device_id, 10)
    assert str(refused.value) == f"failed to register shared memory region: invalid args {text}"
    assert regions.cuda_status("") == []


def test_a_region_needs_a_name(regions, device, shm):
    for family, register, values in (
        ("system", regions.register_system, (shm.key, 0, 10)),
        ("cuda", regions.register_cuda, (device.handle("a"), 0, 10)),
    ):
        with pytest.raises(BadRequest) as refused:
            register("", *values)
        assert str(refused.value) == f"'region name' is necessary to register {family} shared memory region"
    assert len(regions.table) == 0


def test_a_handle_that_is_refused_is_told_with_its_region(regions, device):
    with pytest.raises(BadRequest, match=r"cudaIpcMemHandle_t \(region 'c': it has 2 bytes, a handle has 64; HTTP"):
        regions.register_cuda("c", b"ab", 0, 10)
    text = r"^failed to register shared memory region: invalid args \(region 'c': no such handle\): most likely the "
    with pytest.raises(BadRequest, match=text):
        registered(regions.register_cuda, "c", device.handle("other"), 0, 10)


def test_a_gpu_without_room_is_told_with_the_region(device):
    class Full(HostDevice):
        def open(self, handle, device):
            raise Unopened("cuIpcOpenMemHandle_v2: out of memory", is_full=True)

    regions = ClientRegions(Full, allowed=True)
    text = "region 'c': cuIpcOpenMemHandle_v2: out of memory: GPU 0 has no room for what the driver makes for it; free"
    with pytest.raises(Unavailable, match=text):
        registered(regions.register_cuda, "c", device.handle("a"), 0, 10)


def test_gpus_are_looked_for_when_the_first_handle_comes_and_again_when_there_was_none(device):
    asked = []

    def load():
        asked.append(1)
        if len(asked) == 1:
            raise CudaMissing("no driver")
        return device

    regions = ClientRegions(load, allowed=True)
    assert asked == []
    with pytest.raises(BadRequest) as caught:
        registered(regions.register_cuda, "c", device.handle("a"), 0, 10)
    assert str(caught.value) == "failed to register CUDA shared memory region: 'c', GPUs not supported (no driver)"
    registered(regions.register_cuda, "c", device.handle("a"), 0, 10)
    registered(regions.register_cuda, "d", device.handle("a"), 0, 10)
    assert len(asked) == 2


def test_a_name_is_registered_once_whoever_comes_meanwhile(regions, device, shm):
    async def twice():
        first = regions.register_cuda("c", device.handle("a"), 0, 10)
        for register in (lambda: regions.register_cuda("c", device.handle("a"), 0, 10), system):
            with pytest.raises(AlreadyExists, match="region 'c' already in manager: it is being registered$"):
                register()
        await first

    def system():
        regions.register_system("c", shm.key, 0, 10)

    registered(twice)
    assert device.open_count == 1


@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("name", ["c", ""])
def test_what_is_unregistered_while_it_is_registered_stays_away(regions, device, name, turns):
    async def both():
        coming = regions.register_cuda("c", device.handle("a"), 0, 10)
        for _ in range(turns):
            await asyncio.sleep(0)
        await regions.unregister_cuda(name)
        assert device.open_count == 0
        await coming

    with pytest.raises(Unavailable, match="'c' was unregistered while it was being registered"):
        registered(both)
    assert regions.cuda_status("") == []


@pytest.mark.parametrize("turns", [0, 1])
def test_a_registration_that_is_given_up_leaves_the_name(regions, device, turns):
    async def given_up():
        coming = regions.register_cuda("c", device.handle("a"), 0, 10)
        for _ in range(turns):
            await asyncio.sleep(0)
        coming.cancel()
        await asyncio.wait({coming})
        await regions.register_cuda("c", device.handle("a"), 0, 10)

    registered(given_up)
    assert [each["name"] for each in regions.cuda_status("")] == ["c"]


# ---- HTTP


def test_the_gate(device):
    send = http(ClientRegions(lambda: device, allowed=False))
    closed = says("Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")
    for family in (SYSTEM, CUDA):
        assert send("GET", f"{family}/status") == (200, [])
        for path in ("register", "region/a/register", "unregister", "region/a/unregister"):
            assert send("POST", f"{family}/{path}") == (501, closed)
    with pytest.raises(Unsupported):
        ClientRegions(lambda: device, allowed=False).register_system("a", "/a", 0, 1)


def test_a_life_over_http(regions, shm):
    send = http(regions)
    fields = {"key": shm.key, "offset": 8, "byte_size": 16}
    assert send("POST", f"{SYSTEM}/region/a%20b/register", fields) == (200, None)
    assert send("GET", f"{SYSTEM}/region/a%20b/status") == (200, [{"name": "a b", **fields}])
    assert send("POST", f"{SYSTEM}/region/a%20b/register", fields) == (
        400,
        says("shared memory region 'a b' already in manager"),
    )
    assert send("POST", f"{SYSTEM}/region/a%20b/unregister") == (200, None)
    assert send("GET", f"{SYSTEM}/status") == (200, [])
    assert send("POST", f"{SYSTEM}/unregister") == (200, None)


def test_methods(regions):
    send = http(regions)
    assert send("POST", f"{SYSTEM}/status") == (405, says("Method Not Allowed"))
    assert send("GET", f"{CUDA}/region/a/register") == (405, says("Method Not Allowed"))


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "Shared memory register request has no 'key' field (region 'a')"),
        ([], 400, "Shared memory register request has no 'key' field (region 'a')"),
        (b"", 500, "failed to parse the request JSON buffer: "),
        (b"nonsense", 500, "failed to parse the request JSON buffer: "),
        ({"key": 5}, 500, "attempt to access JSON non-string as string (region 'a': 'key' is 5, not a string)"),
        ({"key": "/a"}, 400, "Shared memory register request has no 'byte_size' field (region 'a')"),
        ({"key": "/a", "byte_size": "x"}, 500, f"{NO_NUMBER} (region 'a': 'byte_size' is \"x\", {NATURAL})"),
        ({"key": "/a", "byte_size": True}, 500, f"{NO_NUMBER} (region 'a': 'byte_size' is true, {NATURAL})"),
        ({"key": "/a", "byte_size": 4, "offset": -1}, 500, f"{NO_NUMBER} (region 'a': 'offset' is -1, {NATURAL})"),
        ({"key": "/a", "byte_size": [4] * 99}, 500, f"{NO_NUMBER} (region 'a': 'byte_size' is [4, 4, "),
        (
            {"key": "/a", "byte_size": 2**64 - 4}, 500,
            "Unable to open shared memory region: '/a' (region 'a': there is no such file in the server's /dev/shm",
        ),
    ],
)
def test_what_a_system_registration_says_wrong(regions, body, status, text):
    got, answer = http(regions)("POST", f"{SYSTEM}/region/a/register", body)
    assert got == status
    assert answer["error"].startswith(text)


@pytest.mark.parametrize("family", ["system", "cuda"])
def test_a_registration_needs_a_name(regions, family):
    text = f"'region name' is necessary to register {family} shared memory region"
    assert http(regions)("POST", f"/v2/{family}sharedmemory/register", {}) == (400, says(text))


def test_a_cuda_registration_over_http(regions, device):
    fields = {
        "raw_handle": {"b64": base64.b64encode(device.handle("a")).decode()},
        "device_id": 0,
        "byte_size": 10,
    }
    send = http(regions)
    assert send("POST", f"{CUDA}/region/c/register", fields) == (200, None)
    assert send("GET", f"{CUDA}/status") == (200, [{"name": "c", "device_id": 0, "byte_size": 10}])


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, "Shared memory register request has no 'raw_handle' field (region 'c')"),
        ({"raw_handle": {}}, 500, f"attempt to access non-existing object member 'b64' (region 'c': {B64})"),
        ({"raw_handle": 5}, 500, f"attempt to access non-existing object member 'b64' (region 'c': {B64})"),
        ({"raw_handle": {"b64": 7}}, 500, "attempt to access JSON non-string as string (region 'c': 'b64' is 7, "),
        ({"raw_handle": {"b64": "AAAA"}}, 500, "attempt to access non-existing object member 'byte_size' (region 'c'"),
        (cuda_fields(device_id=1.5), 500, f"{NO_NUMBER} (region 'c': 'device_id' is 1.5, not {GPU_NUMBER})"),
        (cuda_fields(device_id="0"), 500, f"{NO_NUMBER} (region 'c': 'device_id' is \"0\", not {GPU_NUMBER}, with"),
        (cuda_fields(device_id=None), 500, f"{NO_NUMBER} (region 'c': 'device_id' is null, not {GPU_NUMBER})"),
        (cuda_fields(device_id=True), 500, f"{NO_NUMBER} (region 'c': 'device_id' is true, not {GPU_NUMBER})"),
        (cuda_fields(device_id=2**64), 500, f"{NO_NUMBER} (region 'c': 'device_id' is {float(2**64)}, not the number"),
        (cuda_fields(byte_size="64"), 500, f"{NO_NUMBER} (region 'c': 'byte_size' is \"64\", {NATURAL}, without q"),
        (cuda_fields(byte_size=-1), 500, f"{NO_NUMBER} (region 'c': 'byte_size' is -1, {NATURAL})"),
        (
            cuda_fields(device_id=-1), 400, "failed to register shared memory region: invalid args (region 'c': "
            "device_id is -1, the server sees 1 GPU, so it may be 0)",
        ),
        (
            {"raw_handle": {"b64": "AAAA"}, "byte_size": 1},
            500,
            f"attempt to access non-existing object member 'device_id' (region 'c': give {GPU_NUMBER})",
        ),
        (
            {"raw_handle": {"b64": "AAAA"}, "byte_size": 1, "device_id": 0},
            400,
            f"{NO_HANDLE} (region 'c': it has 3 bytes, a handle has 64; HTTP takes them in base64, gRPC as they are)",
        ),
        (
            {"raw_handle": {"b64": "!"}, "byte_size": 1, "device_id": 0},
            400,
            f"{NO_HANDLE} (region 'c': ",
        ),
    ],
)
def test_what_a_cuda_registration_says_wrong(regions, body, status, text):
    got, answer = http(regions)("POST", f"{CUDA}/region/c/register", body)
    assert got == status
    assert answer["error"].startswith(text)
