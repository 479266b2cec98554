"""The stand-in for the driver: late, counting, and naming memory across processes, as tests of GPU memory rely on."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.gpu.stand_in_driver import LAUNCH_FAILED, OUT_OF_MEMORY, SOURCES
from tests.system.helpers import until
from tisfast.native.cuda_driver import Handle

NBYTES = 4096
INVALID_VALUE, NOT_INITIALIZED, INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 1, 3, 201, 400, 600
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 900, 901


class Driver:
    """The driver's calls of this process, each with its code as the result."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.context = ctypes.c_void_p()
        assert self("cuInit", 0) == 0
        assert self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0) == 0
        assert self("cuCtxSetCurrent", self.context) == 0

    def __call__(self, name: str, *arguments: object) -> int:
        code: int = getattr(self.library, name)(*arguments)
        return code

    def allocate(self, nbytes: int = NBYTES) -> ctypes.c_uint64:
        """Device memory, which the test frees."""
        memory = ctypes.c_uint64()
        assert self("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(nbytes)) == 0
        return memory

    def made(self, call: str, *more: object) -> ctypes.c_void_p:
        """A stream or an event."""
        found = ctypes.c_void_p()
        assert self(call, ctypes.byref(found), *more) == 0
        return found

    def read(self, memory: ctypes.c_uint64, nbytes: int = 4) -> bytes:
        """Its first bytes, now."""
        found = ctypes.create_string_buffer(nbytes)
        assert self("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(nbytes)) == 0
        return found.raw


@pytest.fixture
def driver(stand_in):
    return Driver(stand_in.library)


def test_device_memory_cannot_be_touched_by_the_processor(driver, stand_in):
    memory = driver.allocate()
    code = f"import ctypes; ctypes.string_at({memory.value}, 1)"
    assert driver.read(memory) == bytes(4)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode < 0
    assert driver("cuMemFree_v2", memory) == 0


def test_what_is_queued_is_done_later(driver, stand_in):
    stand_in.set(delay_us=300_000)
    memory, stream = driver.allocate(), driver.made("cuStreamCreate", 1)
    assert driver("cuMemsetD8Async", memory, ctypes.c_ubyte(9), ctypes.c_size_t(4), stream) == 0
    assert driver.read(memory) == bytes(4)
    assert driver("cuStreamSynchronize", stream) == 0
    assert driver.read(memory) == b"\x09" * 4
    assert driver("cuStreamDestroy_v2", stream) == driver("cuMemFree_v2", memory) == 0


def test_what_overlaps_is_not_copied_right(driver):
    memory, parts = ctypes.c_uint64(), b"".join(bytes([at]) * 4096 for at in range(4))
    for first, second in ((0, 4096), (4096, 0)):
        assert driver("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(5 * 4096)) == 0
        begin, to = ctypes.c_uint64(memory.value + first), ctypes.c_uint64(memory.value + second)
        assert driver("cuMemcpyHtoD_v2", begin, parts, ctypes.c_size_t(len(parts))) == 0
        assert driver("cuMemcpyDtoD_v2", to, begin, ctypes.c_size_t(len(parts))) == 0
        found = ctypes.create_string_buffer(len(parts))
        assert driver("cuMemcpyDtoH_v2", found, to, ctypes.c_size_t(len(parts))) == 0
        assert found.raw != parts
        assert driver("cuMemFree_v2", memory) == 0


def test_an_event_orders_two_streams(driver, stand_in):
    stand_in.set(delay_us=50_000)
    memory, event = driver.allocate(), driver.made("cuEventCreate", 2)
    one, other = driver.made("cuStreamCreate", 1), driver.made("cuStreamCreate", 1)
    driver("cuMemsetD8Async", memory, ctypes.c_ubyte(1), ctypes.c_size_t(4), one)
    assert driver("cuEventRecord", event, one) == 0
    assert driver("cuEventQuery", event) == NOT_READY
    assert driver("cuStreamWaitEvent", other, event, 0) == 0
    driver("cuMemsetD8Async", memory, ctypes.c_ubyte(2), ctypes.c_size_t(4), other)
    assert driver("cuStreamSynchronize", other) == 0
    assert driver.read(memory) == b"\x02" * 4
    assert driver("cuEventQuery", event) == 0
    for call, each in (("cuEventDestroy_v2", event), ("cuStreamDestroy_v2", one), ("cuStreamDestroy_v2", other)):
        assert driver(call, each) == 0
    assert driver("cuMemFree_v2", memory) == 0


def test_waiting_for_the_device_breaks_a_capture(driver):
    stream, other, graph = driver.made("cuStreamCreate", 1), driver.made("cuStreamCreate", 1), ctypes.c_void_p()
    memory = driver.allocate()
    for wait, arguments, refused, ended in (
        ("cuCtxSynchronize", (), CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED),
        ("cuStreamSynchronize", (stream,), CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED),
        ("cuStreamSynchronize", (other,), 0, 0),
    ):
        assert driver("cuStreamBeginCapture_v2", stream, 0) == 0
        assert driver("cuMemsetD8Async", memory, ctypes.c_ubyte(9), ctypes.c_size_t(4), stream) == 0
        assert driver(wait, *arguments) == refused
        assert driver("cuStreamEndCapture", stream, ctypes.byref(graph)) == ended
    assert driver("cuGraphDestroy", graph) == driver("cuCtxSynchronize") == 0
    assert driver.read(memory) == bytes(4)  # it was to go into the graph
    for each in (stream, other):
        assert driver("cuStreamDestroy_v2", each) == 0
    assert driver("cuMemFree_v2", memory) == 0


def test_memory_has_a_bound_and_comes_back(driver, stand_in):
    used = stand_in.allocated()
    stand_in.set(device_bytes=used + NBYTES)
    memory = driver.allocate()
    assert driver("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1)) == OUT_OF_MEMORY
    assert driver("cuMemFree_v2", memory) == 0
    assert stand_in.allocated() == used
    assert driver("cuMemFree_v2", memory) == INVALID_VALUE


def test_faults_are_ordered_by_name(driver, stand_in):
    stand_in.fail("cuMemFree_v2", LAUNCH_FAILED, after=1, times=1)
    first, second = driver.allocate(), driver.allocate()
    assert driver("cuMemFree_v2", first) == 0
    assert driver("cuMemFree_v2", second) == LAUNCH_FAILED
    assert driver("cuMemFree_v2", second) == 0


def test_faults_that_are_over_make_room_for_others(driver, stand_in):
    for at in range(100):
        stand_in.fail(f"made_up_{at}", LAUNCH_FAILED)
        stand_in.reset()
    stand_in.fail("cuMemFree_v2", LAUNCH_FAILED, times=1)
    memory = driver.allocate()
    assert [driver("cuMemFree_v2", memory) for _ in range(2)] == [LAUNCH_FAILED, 0]


def test_memory_of_a_process_that_has_died_is_not_counted(driver, export, stand_in):
    before = stand_in.allocated()
    client = export(NBYTES)
    assert stand_in.allocated() - before == NBYTES
    client.kill()
    assert stand_in.allocated() == before


def test_a_process_does_not_open_its_own_handle_and_sees_no_freed_memory(driver, export, stand_in):
    memory, handle, opened = driver.allocate(), Handle(), ctypes.c_uint64()
    assert driver("cuIpcGetMemHandle", ctypes.byref(handle), memory) == 0
    assert driver("cuIpcOpenMemHandle_v2", ctypes.byref(opened), handle, 1) == INVALID_CONTEXT
    assert driver("cuMemFree_v2", memory) == 0
    client = export(NBYTES)
    client.write(b"abcd")
    theirs = Handle.from_buffer_copy(client.handle)
    assert driver("cuIpcOpenMemHandle_v2", ctypes.byref(opened), theirs, 1) == 0
    assert driver.read(opened) == b"abcd"
    before = stand_in.counted()["used_after_free"]
    freed = stand_in.counted()["freed_while_open"]
    client.free()
    assert stand_in.counted()["freed_while_open"] == freed + 1
    found = ctypes.create_string_buffer(4)
    assert driver("cuMemcpyDtoH_v2", found, opened, ctypes.c_size_t(4)) != 0
    assert stand_in.counted()["used_after_free"] == before + 1
    assert driver("cuIpcCloseMemHandle", opened) == 0


def test_a_reset_closes_what_its_context_has_open_on_whatever_gpu_it_is(driver, stand_in, export):
    client, contexts, opened = export(NBYTES), [ctypes.c_void_p(), ctypes.c_void_p()], []
    client.write(b"abcd")
    theirs = Handle.from_buffer_copy(client.handle)  # on GPU 0
    for device in (1, 0):
        assert driver("cuDevicePrimaryCtxRetain", ctypes.byref(contexts[device]), device) == 0
        assert driver("cuCtxSetCurrent", contexts[device]) == 0
        opened.append(ctypes.c_uint64())
        assert driver("cuIpcOpenMemHandle_v2", ctypes.byref(opened[-1]), theirs, 1) == 0
    assert driver("cuDevicePrimaryCtxReset_v2", 1) == 0
    assert driver("cuIpcCloseMemHandle", opened[0]) == INVALID_VALUE
    assert driver.read(opened[1]) == b"abcd"
    assert driver("cuIpcCloseMemHandle", opened[1]) == 0
    assert driver("cuDevicePrimaryCtxRelease_v2", 1) == driver("cuDevicePrimaryCtxRelease_v2", 0) == 0


@pytest.mark.parametrize("ends", ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"])
def test_streams_and_memory_go_with_their_context_and_use_meanwhile_is_counted(driver, stand_in, ends):
    while driver("cuDevicePrimaryCtxRelease_v2", 0) == 0:
        pass  # those of earlier tests
    assert driver("cuDevicePrimaryCtxRetain", ctypes.byref(driver.context), 0) == 0
    stream, memory, before = driver.made("cuStreamCreate", 1), driver.allocate(), stand_in.counted()
    with stand_in.holding():
        assert driver("cuMemsetD8Async", memory, ctypes.c_ubyte(9), ctypes.c_size_t(4), stream) == 0
        waits = threading.Thread(target=driver, args=("cuStreamSynchronize", stream))
        waits.start()
        until(lambda: stand_in.counted()["operations_held"] > before["operations_held"], "it is held")
        assert driver("cuDevicePrimaryCtxRetain", ctypes.byref(driver.context), 0) == 0
        assert driver("cuDevicePrimaryCtxRelease_v2", 0) == 0
        assert stand_in.counted()["streams_ended"] == before["streams_ended"]  # it is retained once more
        assert driver(ends, 0) == 0
    waits.join()
    after = stand_in.counted()
    assert (after["streams_ended"], after["reset_while_used"]) == (before["streams_ended"] + 1, 1)
    assert driver("cuStreamSynchronize", stream) == INVALID_HANDLE
    assert driver("cuMemFree_v2", memory) == INVALID_VALUE
    assert driver("cuStreamDestroy_v2", driver.made("cuStreamCreate", 1)) == 0  # a new one is as good


def test_forked_children_have_no_gpu(driver):
    child = os.fork()
    if not child:
        os._exit(driver("cuMemFree_v2", ctypes.c_uint64(1)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == NOT_INITIALIZED


@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_it_is_clean_under_sanitizers(sanitizers, tmp_path):
    program = tmp_path / "check"
    command = [*os.environ.get("CC", "cc").split(), "-std=c11", "-g", "-O1", f"-fsanitize={sanitizers}", "-pthread"]
    sources = [*SOURCES.glob("*.c"), Path(__file__).parent / "stand_in_check/main.c"]
    command += ["-o", str(program), *map(str, sources)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    steady = ["setarch", os.uname().machine, "-R"]  # older runtimes of TSan need addresses that are not random
    if subprocess.run([*steady, "true"], capture_output=True, check=False).returncode:
        steady = []
    environment = {**os.environ, "TISFAST_STAND_IN": str(tmp_path)}
    ran = subprocess.run([*steady, str(program)], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr[-3000:]
