"""Registering regions: the gate, the names, the families, the texts; over HTTP and as operations."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import threading

import pytest

from tests.loops import fresh_loop
from tests.native.helpers import LANE, HostDevice, ShmFile
from tests.operations.helpers import Served, ask, registry
from tisfast.errors import AlreadyExists, BadRequest, Internal, NotFound, Unavailable, Unsupported
from tisfast.executor import Lane
from tisfast.limits import REGION_NAME_BYTES_MAX, REGIONS_MAX
from tisfast.native.cuda import CudaMissing, Holder, Unopened
from tisfast.operations import regions as regions_module
from tisfast.operations.regions import ClientRegions
from tisfast.operations.routes import Routes
from tisfast.operations.service import Service

SYSTEM, CUDA = "/v2/systemsharedmemory", "/v2/cudasharedmemory"
NO_NUMBER = "attempt to access JSON non-unsigned-integer as unsigned-integer"
NO_HANDLE = "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"


@pytest.fixture
def shm():
    with ShmFile(bytes(range(200))) as file:
        yield file


@pytest.fixture
def device():
    return HostDevice(a=b"0123456789")


@pytest.fixture
def regions(device):
    return ClientRegions(lambda: device, allowed=True)


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


def registered(call, *values):
    """Wait for what `call`, on a loop, gives."""

    async def work():
        return await call(*values)

    with fresh_loop() as loop:
        return loop.run_until_complete(work())


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
    assert str(caught.value).startswith(f"Unable to open shared memory region: '{key}' (")


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
    text = f"(region 'c': device_id is {device_id}, the server sees {count}, counted from 0)"
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
    with pytest.raises(BadRequest, match=r"cudaIpcMemHandle_t \(region 'c': it has 2 bytes, a handle has 64\)$"):
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
            with pytest.raises(AlreadyExists, match="^shared memory region 'c' already in manager$"):
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


@pytest.fixture
def busy():
    """busy(): from now on the lane of the device has other work, until `busy.over` is set."""

    class Busy:
        over = threading.Event()

        def __call__(self):
            LANE.post(self.over.wait)

    made = Busy()
    yield made
    made.over.set()


@pytest.mark.parametrize("name", ["c", ""])
def test_unregistering_says_so_while_the_memory_is_not_closed(regions, device, busy, monkeypatch, caplog, name):  # noqa: PLR0917
    async def hanging():
        for each in "cd":
            await regions.register_cuda(each, device.handle("a"), 0, 10)
        busy()
        closing = regions.unregister_cuda(name)
        assert [each["name"] for each in regions.cuda_status("")] == (["d"] if name else [])
        with pytest.raises(Unavailable, match=text):
            await closing
        with pytest.raises(Unavailable, match=text):  # it is not closed yet
            await regions.unregister_cuda(name)
        await regions.unregister_cuda("x")
        busy.over.set()
        await regions.unregister_cuda(name)

    others = "" if name else " and 1 others"
    text = (
        f"^shared memory region 'c'{others} unregistered, but not closed within 0.1 s; do not free the memory yet, and "
        "unregister again to wait again: the host hangs or is busy with others' work. Look whether "
    )
    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    monkeypatch.setattr("tisfast.limits.GPU_REGION_TOLD_SECONDS", 0.05)
    registered(hanging)
    told = [each for each in caplog.messages if f"region 'c'{others} unregistered" in each]
    assert len(told) == 2  # each call that waited
    assert told[0].startswith(
        f"shared memory region 'c'{others} unregistered, but not closed within 0.05 s: the host hangs or is busy"
    )


@pytest.mark.parametrize("more", ["", " and 1 others"])
def test_unregistering_says_which_instances_it_waits_for(regions, device, monkeypatch, caplog, more):
    async def waiting():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        memory = regions.table.get("c").file.memory
        memory.holders[1] = Holder("m_0_1", None)
        if more:
            memory.holders[2] = Holder("m_0_2", None)
        with pytest.raises(Unavailable, match=f"do not free the memory yet.*: instance m_0_1{more} had it open"):
            await regions.unregister_cuda("c")
        assert regions.unfinished() == [f"shared memory region 'c' still to be closed: {text}"]
        memory.holders.clear()
        del memory  # as the instances' tables do
        await regions.unregister_cuda("c")
        assert regions.unfinished() == []

    text = (
        f"instance m_0_1{more} had it open and closes it behind the batch that is executed, which takes long "
        "(--execution-timeout-secs ends one that hangs)"
    )
    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    monkeypatch.setattr("tisfast.limits.GPU_REGION_TOLD_SECONDS", 0.05)
    registered(waiting)
    assert caplog.messages == [f"shared memory region 'c' unregistered, but not closed within 0.05 s: {text}"]


UNCLOSED = (
    "unregistered, but not closed: the driver refuses that in {}. Do not free the memory before they have ended: end "
    "the server, or unload the model of an instance"
)


@pytest.fixture
def register(regions, device):
    """Register a region: what is told when it is to be closed may be said in the list that this gives."""

    async def register(name):
        await regions.register_cuda(name, device.handle("a"), 0, 10)
        return regions.table.get(name).file.memory.unclosed

    return register


@pytest.mark.parametrize("name", ["c", ""])
def test_who_unregisters_is_told_once_that_the_driver_does_not_close_it(regions, register, name):
    async def refused():
        for each in "cd":
            (await register(each)).append(f"the server (cuIpcCloseMemHandle: {each})")
        answers = [regions.unregister_cuda(name) for _ in range(2)]  # both wait for it
        assert [each["name"] for each in regions.cuda_status("")] == (["d"] if name else [])
        await asyncio.wait(answers)
        where = "the server (cuIpcCloseMemHandle: c)" + ("" if name else ", in the server (cuIpcCloseMemHandle: d)")
        for each in answers:
            assert str(each.exception()) == f"shared memory region 'c'{others} {UNCLOSED.format(where)}"
            assert isinstance(each.exception(), Internal)
        await regions.unregister_cuda(name)
        await register("c")
        await regions.unregister_cuda("c")

    others = "" if name else " and 1 others"
    registered(refused)


@pytest.mark.parametrize("again", [False, True])
def test_a_refusal_that_nobody_has_waited_for_is_told_to_the_next_one(regions, register, busy, again):
    async def late():
        (await register("c")).append("instance m_0_0 (no)")
        busy()
        left = regions.unregister_cuda("c")
        left.cancel()
        busy.over.set()
        await asyncio.wait({regions._closing["c"].done})
        await asyncio.sleep(0)
        if again:
            await register("c")
        await regions.unregister_cuda("x")
        with pytest.raises(Internal, match="'c' unregistered, but not closed: the driver refuses that in instance"):
            await regions.unregister_cuda("c")
        await regions.unregister_cuda("c")

    registered(late)


def test_refusals_that_nobody_asks_for_are_bounded(regions, device, register, monkeypatch):
    async def never_asked():
        for name in "cd":
            (await register(name)).append("instance m_0_0 (no)")
            regions.unregister_cuda(name).cancel()
        await asyncio.wait({each.done for each in regions._closing.values()})
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="2 regions are registered or being closed, which is the limit"):
            await register("e")
        with pytest.raises(Internal):
            await regions.unregister_cuda("")
        await register("e")

    monkeypatch.setattr("tisfast.limits.REGIONS_MAX", 2)
    registered(never_asked)


def test_system_memory_is_unregistered_at_once(regions, busy, shm):
    busy()
    regions.register_system("s", shm.key, 0, 10)
    assert regions.unregister_system("s") is None
    assert regions.system_status("") == []


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
        ({}, 400, "Shared memory register request has no 'key' field"),
        ([], 400, "Shared memory register request has no 'key' field"),
        (b"", 500, "failed to parse the request JSON buffer: "),
        (b"nonsense", 500, "failed to parse the request JSON buffer: "),
        ({"key": 5}, 500, "attempt to access JSON non-string as string"),
        ({"key": "/a"}, 400, "Shared memory register request has no 'byte_size' field"),
        ({"key": "/a", "byte_size": "x"}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/a", "byte_size": True}, 500, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ({"key": "/a", "byte_size": 4, "offset": -1}, 500, "attempt to access JSON non-unsigned-integer"),
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
        ({}, 400, "Shared memory register request has no 'raw_handle' field"),
        ({"raw_handle": {}}, 500, "attempt to access non-existing object member 'b64'"),
        ({"raw_handle": {"b64": "AAAA"}}, 500, "attempt to access non-existing object member 'byte_size'"),
        (cuda_fields(device_id=1.5), 500, f"{NO_NUMBER} ('device_id'"),
        (cuda_fields(device_id=2**64), 500, f"{NO_NUMBER} ('device_id'"),
        (cuda_fields(byte_size=-1), 500, f"{NO_NUMBER} ('byte_size'"),
        (
            cuda_fields(device_id=-1), 400, "failed to register shared memory region: invalid args (region 'c': "
            "device_id is -1, the server sees 1 GPU, counted from 0)",
        ),
        (
            {"raw_handle": {"b64": "AAAA"}, "byte_size": 1},
            500,
            "attempt to access non-existing object member 'device_id'",
        ),
        (
            {"raw_handle": {"b64": "AAAA"}, "byte_size": 1, "device_id": 0},
            400,
            f"{NO_HANDLE} (region 'c': it has 3 bytes, a handle has 64)",
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


class Opening(HostDevice):
    """One whose driver takes its time to open a handle."""

    def __init__(self, **memories):
        super().__init__(**memories)
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.lane_of_its_own = LANE

    def lane(self, device):
        return self.lane_of_its_own

    def open(self, handle, device):
        self.begun.set()
        self.may_end.wait()
        return super().open(handle, device)


@pytest.mark.parametrize("when", ["meanwhile", "told"])
@pytest.mark.parametrize("name", ["c", ""])
def test_unregistering_says_so_while_the_memory_may_still_be_opened(monkeypatch, when, name):
    device = Opening(a=b"0123456789")
    regions = ClientRegions(lambda: device, allowed=True)

    async def late():
        coming = regions.register_cuda("c", device.handle("a"), 0, 10)
        await asyncio.to_thread(device.begun.wait, 60)
        if when == "told":
            with pytest.raises(Unavailable, match="the host has not done a call within 0.1 s"):
                await coming
        try:
            with pytest.raises(Unavailable, match="'c' unregistered, but not closed within 0.1 s"):
                await regions.unregister_cuda(name)
        finally:
            device.may_end.set()
        await regions.unregister_cuda(name)
        assert device.open_count == 0
        with pytest.raises(Unavailable):
            await coming

    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    monkeypatch.setattr("tisfast.limits.GPU_REGION_TOLD_SECONDS", 0.05)
    registered(late)


def test_what_is_unregistered_in_the_moment_of_its_registration_is_closed_first(regions, device, busy):
    async def look():
        coming = regions.register_cuda("c", device.handle("a"), 0, 10)
        while not regions.cuda_status(""):
            await asyncio.sleep(0)
        busy()
        closing = regions.unregister_cuda("")
        assert not (await asyncio.wait({closing}, timeout=0.1))[0]
        busy.over.set()
        await closing
        assert device.open_count == 0
        await coming

    registered(look)


def test_a_name_that_is_used_again_waits_for_what_was_there_before(regions, device, busy, monkeypatch):
    async def again():
        await regions.register_cuda("c", device.handle("a"), 0, 10)
        busy()
        first = regions.unregister_cuda("c")
        regions._close("c", regions_module.Closing(done(), lambda: "GPU 1 hangs"))  # as of another GPU
        second = regions.unregister_cuda("c")
        await asyncio.wait({first, second})
        for each in (first, second):
            with pytest.raises(Unavailable, match="the host hangs"):
                each.result()
        busy.over.set()
        await regions.unregister_cuda("c")

    def done():
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    monkeypatch.setattr("tisfast.limits.GPU_REGION_TOLD_SECONDS", 0.05)
    registered(again)


@pytest.mark.parametrize("nbytes", [0, 11])
def test_a_region_that_is_refused_is_closed_before_the_client_may_free_it(regions, device, busy, nbytes):
    async def refused():
        gc.disable()  # nobody waits for the collector
        try:
            coming = regions.register_cuda("c", device.handle("a"), 0, nbytes)
            with pytest.raises(BadRequest, match="byte_size must be above 0"):
                await coming
            await regions.unregister_cuda("c")
            assert device.open_count == 0
        finally:
            gc.enable()

    registered(refused)


def test_registrations_that_a_hung_gpu_refuses_leave_nothing(monkeypatch):
    device = Opening(a=b"0123456789")
    device.lane_of_its_own = Lane(4, "test-hung", "the host", "")
    regions = ClientRegions(lambda: device, allowed=True)

    async def refused():
        first = regions.register_cuda("first", device.handle("a"), 0, 10)
        await asyncio.to_thread(device.begun.wait, 60)
        try:
            for turn in range(3):
                waiting = [regions.register_cuda(f"r{turn}-{at}", device.handle("a"), 0, 10) for at in range(20)]
                for each in waiting:
                    with pytest.raises(Unavailable):
                        await each
            with pytest.raises(Unavailable):
                await first
            assert len(device.lane_of_its_own._orders) <= 2  # what is closed behind the one that has begun
            assert set(regions._closing) == {"first"}
        finally:
            device.may_end.set()
        await regions.unregister_cuda("")
        assert device.open_count == 0

    monkeypatch.setattr("tisfast.limits.GPU_REGION_SECONDS_MAX", 0.1)
    registered(refused)
