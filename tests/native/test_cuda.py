"""The driver's library through ctypes: a C stand-in for libcuda, built here, shows calls, order and failures."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import re
import shutil
import subprocess
import threading
import weakref
from functools import partial
from uuid import UUID

import pytest

from tests.loops import fresh_loop
from tisfast import limits
from tisfast.errors import Internal, Unavailable
from tisfast.native.cuda import Cuda, OneCuda
from tisfast.native.cuda_driver import CudaMissing
from tisfast.native.cuda_faces import By, Refusal, Unopened
from tisfast.native.cuda_lanes import GpuCondition

SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef uint64_t ptr; typedef struct { unsigned char bytes[64]; } handle;
int allocated, fail_alloc, fail_export, fail_back, fail_range, lose;
int opened, closed, streams, resets, fail_copy, fail_context, fail_stream, fail_init, devices = 2, current = -1;
int fail_reset, fail_release, fail_stream_at, retained, streams_there;
static uint64_t size;
static int contexts[8], holds[8], with_streams[8], broken[8];
/* After one of these nothing in the context succeeds until it is gone. */
static int breaks(int code) { return broken[current] = code == 700 || code == 719 ? code : 0, code; }
static void destroy(int d) { streams_there -= with_streams[d]; with_streams[d] = broken[d] = 0; }
#define WORKS() do { if (broken[current]) return broken[current]; } while (0)
int cuInit(unsigned flags) { return fail_init ? 100 : (int)flags; }
int cuDeviceGetCount(int *n) { *n = devices; return 0; }
int cuDeviceGet(int *d, int n) { *d = n + 10; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) {
    if (fail_context) return fail_context;
    retained++, holds[d - 10]++;
    contexts[d - 10] = d; *c = &contexts[d - 10]; return 0;
}
int cuDevicePrimaryCtxReset_v2(int d) {
    resets++;
    if (fail_reset) return fail_reset;
    destroy(d - 10); return 0;
}
int cuDevicePrimaryCtxRelease_v2(int d) {
    if (fail_release || !holds[d - 10]) return 201;
    retained--;
    if (!--holds[d - 10]) destroy(d - 10);
    return 0;
}
int cuCtxSetCurrent(void *c) { current = *(int *)c - 10; return 0; }
int cuStreamCreate(void **s, unsigned flags) {
    WORKS();
    if (fail_stream && with_streams[current] == fail_stream_at) return breaks(fail_stream);
    streams++, streams_there++, with_streams[current]++;
    *s = (void *)(uintptr_t)(0x500 + flags + (unsigned)current * 16); return 0;
}
int cuStreamSynchronize(void *s) { return s == (void *)(uintptr_t)(0x501 + current * 16) ? 0 : 400; }
int cuIpcOpenMemHandle_v2(ptr *p, handle h, unsigned flags) {
    WORKS();
    if (h.bytes[63] != 7 || flags != 1) return 201;
    memcpy(&size, h.bytes, 8);
    *p = (ptr)(uintptr_t)calloc(1, size); opened++; return 0;
}
int cuIpcCloseMemHandle(ptr p) {
    WORKS();
    if (lose) return breaks(719);
    if (fail_back) return 201; free((void *)(uintptr_t)p); closed++; return 0;
}
int cuDeviceGetUuid(unsigned char *uuid, int d) { memset(uuid, d, 16); return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int d) { return cuDeviceGetUuid(uuid, d); }
int cuMemAlloc_v2(ptr *p, size_t n) {
    WORKS();
    if (fail_alloc) return 2;
    *p = (ptr)(uintptr_t)calloc(1, n); allocated++; return 0;
}
int cuMemFree_v2(ptr p) { if (fail_back) return 1; free((void *)(uintptr_t)p); allocated--; return 0; }
int cuIpcGetMemHandle(handle *h, ptr p) {
    if (fail_export) return 801;
    memset(h, 0, sizeof *h); memcpy(h, &p, 8); return 0;
}
int cuMemGetAddressRange_v2(ptr *base, size_t *n, ptr p) {
    if (fail_range) return 201;
    *base = p; *n = size; return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, ptr p, size_t n, void *s) {
    (void)s; WORKS(); if (fail_copy) return breaks(fail_copy); memcpy(to, (void *)(uintptr_t)p, n); return 0;
}
int cuMemcpyHtoDAsync_v2(ptr p, const void *from, size_t n, void *s) {
    (void)s; WORKS(); if (fail_copy) return breaks(fail_copy); memcpy((void *)(uintptr_t)p, from, n); return 0;
}
int cuMemcpyDtoDAsync_v2(ptr p, ptr from, size_t n, void *s) {
    (void)s; WORKS(); if (fail_copy) return breaks(fail_copy);
    memmove((void *)(uintptr_t)p, (void *)(uintptr_t)from, n); return 0;
}
int cuGetErrorString(int code, const char **text) { *text = "no context"; return code == 201 ? 0 : 1; }
"""

UUIDS = [f"GPU-{UUID(bytes=bytes([number + 10]) * 16)}" for number in range(2)]


def logged(number):
    """The GPU in the log."""
    return f"GPU {number} ({UUIDS[number]})"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    compiler = os.environ.get("CC", "cc")
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "cuda.c").write_text(SOURCE)
    subprocess.run([*compiler.split(), "-shared", "-fPIC", "-o", folder / "libcuda.so", folder / "cuda.c"], check=True)
    return folder / "libcuda.so"


@pytest.fixture
def library(built, tmp_path):
    """One of the test's own: GPUs' threads of earlier tests may be at work still."""
    return str(shutil.copy(built, tmp_path / "libcuda.so"))


@pytest.fixture
def driver(library):
    """The stand-in's switches and counters."""

    class Driver:
        def __getattr__(self, name):
            return ctypes.c_int.in_dll(ctypes.CDLL(library), name)

    return Driver()


def handle(nbytes, mark=7):
    return nbytes.to_bytes(8, "little") + bytes(55) + bytes([mark])


def given_back(cuda, device):
    """Wait until the GPU's thread has given back what nobody refers to, and what has gone with a lost context."""
    for _ in range(2):
        passed = threading.Event()
        cuda.lane(device).post(passed.set)
        assert passed.wait(60)


def test_open_copy_close(library, driver):
    opened, closed = driver.opened.value, driver.closed.value
    cuda = Cuda(library)
    memory = cuda.open(handle(32), 1)
    assert (memory.nbytes, driver.current.value, driver.opened.value) == (32, 1, opened + 1)
    data = ctypes.create_string_buffer(b"abcdef", 6)
    memory.from_host(4, ctypes.addressof(data), 6)
    back = ctypes.create_string_buffer(8)
    memory.to_host(3, ctypes.addressof(back), 8)
    assert back.raw == b"\0abcdef\0"
    del memory
    given_back(cuda, 1)
    assert driver.closed.value == closed + 1


def test_memory_is_copied_between_handles(library, driver):
    cuda = Cuda(library)
    source, target = cuda.open(handle(32), 0), cuda.open(handle(16), 1)
    source.from_host(8, ctypes.addressof(ctypes.create_string_buffer(b"abcd", 4)), 4)
    target.from_device(3, source, 8, 4)
    back = ctypes.create_string_buffer(6)
    target.to_host(2, ctypes.addressof(back), 6)
    assert back.raw == b"\0abcd\0"
    driver.fail_copy.value = 700
    with pytest.raises(Internal, match="copying 4 bytes of GPU memory failed: cuMemcpyDtoDAsync_v2: error 700"):
        target.from_device(3, source, 8, 4)


def test_two_devices_have_their_own_contexts_and_streams(library, driver):
    cuda = Cuda(library)
    first, second = cuda.open(handle(8), 0), cuda.open(handle(8), 1)
    back = ctypes.create_string_buffer(8)
    for memory, device in ((first, 0), (second, 1), (first, 0)):
        memory.to_host(0, ctypes.addressof(back), 8)
        assert driver.current.value == device


def test_a_handle_that_is_none_names_the_drivers_reason(library):
    with pytest.raises(Unopened, match="^cuIpcOpenMemHandle_v2: no context$") as refused:
        Cuda(library).open(handle(32, mark=0), 0)
    assert not refused.value.is_full


LOST = r"\. The server has lost GPU \d \(GPU-.*\): unregister all regions there, and register them again$"
TO_STAY = rf": error 700\. If the client has freed this memory, .* register it again with memory that is there{LOST}"


def test_a_copy_that_fails_is_an_error_of_the_request_with_the_remedy(library, driver):
    cuda, address = Cuda(library), ctypes.addressof(ctypes.create_string_buffer(4))
    reading, writing = (cuda.open(handle(32), device) for device in (0, 1))
    driver.fail_copy.value = 700
    with pytest.raises(Internal, match=f"^copying 4 bytes of GPU memory failed: cuMemcpyDtoHAsync_v2{TO_STAY}"):
        reading.to_host(0, address, 4)
    with pytest.raises(Internal, match=f"^copying 4 bytes of GPU memory failed: cuMemcpyHtoDAsync_v2{TO_STAY}"):
        writing.from_host(0, address, 4)


@pytest.mark.parametrize("to_client", [True, False])
def test_what_is_copied_from_or_to_memory_of_a_client_has_its_remedy(library, driver, to_client):
    cuda = Cuda(library)
    given, lent = cuda.open(handle(32), 0), cuda.allocate(0, 64)
    driver.fail_copy.value = 700
    with pytest.raises(Internal, match=f"cuMemcpyDtoDAsync_v2{TO_STAY}"):
        (given if to_client else lent).from_device(0, lent if to_client else given, 0, 4)


def test_memory_of_the_server_needs_no_remedy_of_a_client(library, driver):
    lent = Cuda(library).allocate(0, 64)
    driver.fail_copy.value = 700
    with pytest.raises(Internal, match=f"cuMemcpyHtoDAsync_v2: error 700{LOST}"):
        lent.from_host(0, ctypes.addressof(ctypes.create_string_buffer(4)), 4)


def test_what_the_driver_does_not_close_is_told(library, driver):
    cuda = Cuda(library)
    memory = cuda.open(handle(32), 0)
    unclosed = memory.unclosed
    driver.fail_back.value = 1
    del memory
    given_back(cuda, 0)
    assert list(unclosed.values()) == [Refusal(By.SERVER, "the server", "cuIpcCloseMemHandle: no context")]


def test_a_gpu_that_is_lost_in_the_closing_takes_the_memory_with_it(library, driver, caplog):
    """What was refused before goes, too."""
    cuda = Cuda(library)
    memories = [cuda.open(handle(32), 0) for _ in range(2)]
    unclosed = [each.unclosed for each in memories]
    driver.fail_back.value, resets = 1, driver.resets.value
    memories.pop()
    given_back(cuda, 0)
    assert len(unclosed[1]) == 1
    driver.fail_back.value, driver.lose.value = 0, 1
    memories.pop()
    given_back(cuda, 0)
    driver.lose.value = 0
    assert driver.resets.value == resets + 1
    assert unclosed == [{}, {}]
    assert len([each for each in caplog.messages if "does not give memory back" in each]) == 1


def test_which_gpu_is_at_work_is_told(library):
    cuda, begun, over = Cuda(library), threading.Event(), threading.Event()
    assert cuda.busy == OneCuda().busy == []
    cuda.lane(1).post(lambda: begun.set() or over.wait(60))
    begun.wait(60)
    assert cuda.busy == [logged(1)]
    over.set()


def test_memory_for_others_is_allocated_on_the_gpu_of_a_uuid_and_freed_with_its_last_reference(library, driver):
    cuda = Cuda(library)
    memory = cuda.allocate(cuda.number_of(bytes([11]) * 16), 64)
    assert (memory.nbytes, len(memory.handle), driver.current.value, driver.allocated.value) == (64, 64, 1, 1)
    del memory
    given_back(cuda, 1)
    assert driver.allocated.value == 0


def test_memory_that_is_not_given_back_is_told_once_for_each_gpu_and_call(library, driver, caplog):
    cuda = Cuda(library)
    kept = [cuda.open(handle(8), device) for device in (0, 0, 1)] + [cuda.allocate(0, 64) for _ in range(2)]
    driver.fail_back.value = 1
    kept.clear()
    for device in (0, 1):
        given_back(cuda, device)
    assert sorted(each.getMessage() for each in caplog.records) == [
        f"{what}): that memory stays in use until the server ends. This is said once for each GPU and call, and there "
        "may be more such memory later"
        for what in (
            f"{logged(0)} does not give memory back (cuIpcCloseMemHandle: no context",
            f"{logged(0)} does not give memory back (cuMemFree_v2: error 1",
            f"{logged(1)} does not give memory back (cuIpcCloseMemHandle: no context",
        )
    ]
    again = cuda.open(handle(8), 0)  # the GPU is used on
    again.to_host(0, ctypes.addressof(ctypes.create_string_buffer(8)), 8)


@pytest.mark.parametrize(
    ("fault", "uuid", "text"),
    [
        ("fail_alloc", 10, "allocating 64 bytes of GPU memory failed: cuMemAlloc_v2: error 2"),
        ("fail_export", 10, "allocating 64 bytes of GPU memory failed: cuIpcGetMemHandle: error 801"),
        ("devices", 99, "the server does not see the GPU 6363"),
    ],
)
def test_memory_that_cannot_be_lent_is_kept_by_nobody(library, driver, fault, uuid, text):
    cuda = Cuda(library)
    getattr(driver, fault).value = 2
    with pytest.raises(Unavailable, match=text) as refused:
        cuda.allocate(cuda.number_of(bytes([uuid]) * 16), 64)
    given_back(cuda, 0)
    assert driver.allocated.value == 0
    assert refused.value  # not even by its error


def test_memory_that_was_opened_in_vain_is_closed_while_somebody_has_the_error(library, driver):
    cuda, opened, closed = Cuda(library), driver.opened.value, driver.closed.value
    driver.fail_range.value = 1
    with pytest.raises(Unopened, match="^cuMemGetAddressRange_v2: no context$") as refused:
        cuda.open(handle(32), 0)
    given_back(cuda, 0)
    assert refused.value and (driver.opened.value, driver.closed.value) == (opened + 1, closed + 1)
    del refused
    gc.collect()
    given_back(cuda, 0)
    assert driver.closed.value == closed + 1  # once


def test_machines_without_a_gpu_say_why(library, driver, tmp_path, monkeypatch):
    with pytest.raises(CudaMissing, match="the NVIDIA driver's library cannot be used: .*nothing.so"):
        Cuda(str(tmp_path / "nothing.so"))
    driver.devices.value = 0
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(CudaMissing, match="^the NVIDIA driver sees no GPU$"):
        Cuda(library)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")
    with pytest.raises(CudaMissing, match="^the NVIDIA driver sees no GPU with CUDA_VISIBLE_DEVICES=9$"):
        Cuda(library)
    driver.fail_init.value = 1
    hidden = "the NVIDIA driver offers no GPU with CUDA_VISIBLE_DEVICES=9: cuInit: error 100"
    with pytest.raises(CudaMissing, match=hidden):
        Cuda(library)


def test_a_device_is_set_up_once_for_all_handles(library, driver):
    cuda = Cuda(library)
    streams = driver.streams.value
    memories = [cuda.open(handle(8), 1) for _ in range(3)]
    assert driver.streams.value == streams + 2  # one for short copies, one for long ones
    assert [memory.nbytes for memory in memories] == [8, 8, 8]


def test_a_lost_device_is_made_anew_with_the_next_handle(library, driver):
    cuda = Cuda(library)
    memory, data = cuda.open(handle(32), 0), ctypes.create_string_buffer(4)
    driver.fail_copy.value = 700  # an illegal address, after which the driver has no more for this context
    with pytest.raises(Internal, match="error 700"):
        memory.to_host(0, ctypes.addressof(data), 4)
    driver.fail_copy.value = 0
    again = r"server lost GPU 0 .*error 700\); regions of before that must be unregistered and registered again"
    with pytest.raises(Internal, match=again):
        memory.to_host(0, ctypes.addressof(data), 4)
    other = cuda.open(handle(32), 0)
    assert driver.resets.value == 1
    other.to_host(0, ctypes.addressof(data), 4)
    del memory
    given_back(cuda, 0)
    assert (driver.closed.value, driver.resets.value, driver.retained.value) == (0, 1, 1)


GOOD = GpuCondition(0, UUIDS[0], losses=0, is_lost=False, is_unusable=False, hangs=False)


def lost(caplog):
    """The lines that say so, without their remedy."""
    return [each.partition(": CUDA")[0] for each in caplog.messages if "has lost GPU" in each]


def used_again(caplog):
    return [each for each in caplog.messages if "the server uses GPU" in each]


def in_thread(lane, work, what):
    """What a GPU's thread makes of work that is for `what`; of an error its text."""
    found, passed = [], threading.Event()

    def does():
        try:
            found.append(work())
        except (Internal, Unavailable, Unopened) as error:
            found.append(str(error))

    lane.post(does, what)
    lane.post(passed.set)
    assert passed.wait(60)
    return found.pop()


def test_a_loss_is_told_once_with_what_has_found_it_and_so_is_the_end_of_it(library, driver, caplog):
    caplog.set_level("INFO")
    cuda, address = Cuda(library), ctypes.addressof(ctypes.create_string_buffer(4))
    assert cuda.conditions() == []
    memory = in_thread(cuda.lane(0), partial(cuda.open, handle(32), 0), "region 'r'")
    assert cuda.conditions() == [GOOD]
    driver.fail_copy.value = 700
    for name in "AB":
        assert "700" in in_thread(memory.lane(4), partial(memory.to_host, 0, address, 4), f"tensor '{name}'")
    driver.fail_copy.value = 0
    text = f"the server has lost {logged(0)}, found in a call for tensor 'A' (cuMemcpyDtoHAsync_v2: error 700)"
    assert lost(caplog) == [text]
    given_back(cuda, 0)
    assert used_again(caplog) == [] and cuda.conditions() == [GOOD._replace(losses=1, is_lost=True)]
    with pytest.raises(Unopened):
        cuda.open(handle(32, mark=0), 0)  # the context that is begun anew for it works
    for _ in range(2):
        assert cuda.conditions() == [GOOD._replace(losses=1)]
        cuda.open(handle(32), 0).to_host(0, address, 4)
    (told,) = used_again(caplog)
    assert re.fullmatch(
        rf"the server uses {re.escape(logged(0))} again, [\d.]+ s after it had lost it: new CUDA regions can be "
        "registered there, and memory is lent. Regions of before the loss stay unusable until .*", told,
    )  # fmt: skip
    assert lost(caplog) == [text] and cuda.conditions() == [GOOD._replace(losses=1)]


def test_a_loss_in_a_closing_is_told_with_what_the_memory_was_opened_for(library, driver, caplog):
    cuda = Cuda(library)
    memory = in_thread(cuda.lane(0), partial(cuda.open, handle(32), 0), "region 'r'")
    driver.lose.value = 1
    del memory
    given_back(cuda, 0)
    assert lost(caplog) == [
        f"the server has lost {logged(0)}, found in a call for region 'r' (cuIpcCloseMemHandle: error 719)"
    ]


def test_memory_that_is_allocated_ends_a_loss_too(library, driver, caplog):
    caplog.set_level("INFO")
    cuda, address = Cuda(library), ctypes.addressof(ctypes.create_string_buffer(4))
    lent = cuda.allocate(1, 64)
    driver.fail_copy.value = 700
    with pytest.raises(Internal):
        lent.from_host(0, address, 4)
    assert lost(caplog) == [f"the server has lost {logged(1)} (cuMemcpyHtoDAsync_v2: error 700)"]
    driver.fail_copy.value = 0
    del lent
    given_back(cuda, 1)
    cuda.allocate(1, 64)
    assert len(used_again(caplog)) == 1


@pytest.mark.parametrize("fault", ["fail_reset", "fail_release"])
def test_a_lost_context_that_the_driver_does_not_end_is_not_left_behind(library, driver, fault):
    """Its memory would take a later context of that GPU with it."""
    cuda = Cuda(library)
    memory, data = cuda.open(handle(32), 0), ctypes.create_string_buffer(4)
    driver.fail_copy.value, getattr(driver, fault).value = 700, 101
    with pytest.raises(Internal, match="error 700"):
        memory.to_host(0, ctypes.addressof(data), 4)
    driver.fail_copy.value = 0
    given_back(cuda, 0)
    with pytest.raises(Unavailable, match="cuDevicePrimaryCtx(Reset_v2: error 101|Release_v2: no context)"):
        cuda.open(handle(32), 0)
    getattr(driver, fault).value = 0
    other = cuda.open(handle(32), 0)
    assert driver.resets.value == 3
    del memory
    given_back(cuda, 0)
    assert (driver.resets.value, driver.retained.value) == (3, 1)
    other.to_host(0, ctypes.addressof(data), 4)


@pytest.mark.parametrize("lends", [False, True])
@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_open_on_a_lost_gpu_is_closed_with_its_context(library, driver, lends, refuses):
    """Not while others have memory open that goes with it, too.  Behind that the next handle finds a new one."""
    cuda = Cuda(library)
    memory, data = cuda.open(handle(32), 0), ctypes.create_string_buffer(4)
    lent = cuda.allocate(0, 64) if lends else None
    driver.fail_copy.value, driver.fail_reset.value = 700, 101 if refuses else 0
    with pytest.raises(Internal, match="error 700"):
        memory.to_host(0, ctypes.addressof(data), 4)
    driver.fail_copy.value, unclosed = 0, memory.unclosed
    del memory
    given_back(cuda, 0)
    assert (driver.resets.value > 0) != lends
    del lent
    given_back(cuda, 0)
    assert driver.resets.value > 0 and driver.closed.value == 0
    refusal = Refusal(By.SERVER, "the server", "cuDevicePrimaryCtxReset_v2: error 101")
    assert list(unclosed.values()) == ([refusal] if refuses else [])
    driver.fail_reset.value, resets = 0, driver.resets.value
    cuda.open(handle(32), 0).to_host(0, ctypes.addressof(data), 4)
    assert driver.resets.value == resets + refuses
    assert unclosed == {}


def test_all_that_is_open_until_the_context_goes_is_closed_with_it(library, driver, monkeypatch):
    """However much it is; what nobody may ask for any more is not remembered."""
    monkeypatch.setattr(limits, "GPU_REFUSALS_MAX", 1)
    cuda = Cuda(library)
    lost, *memories = [cuda.open(handle(32), 0) for _ in range(5)]
    kept, forgotten = [each.unclosed for each in memories[1:]], weakref.ref(memories[0].unclosed)
    driver.fail_back.value = 1
    memories.clear()
    given_back(cuda, 0)
    assert all(kept) and forgotten() is None
    driver.fail_copy.value = 700
    with pytest.raises(Internal, match="error 700"):
        lost.to_host(0, ctypes.addressof(ctypes.create_string_buffer(4)), 4)
    given_back(cuda, 0)
    assert not any(kept)


def futures():
    """Those that somebody has."""
    gc.collect()
    return sum(isinstance(each, asyncio.Future) for each in gc.get_objects())


def test_who_waits_in_vain_for_a_lost_gpu_leaves_nothing(library, driver):
    cuda = Cuda(library)
    lent, data = cuda.allocate(0, 64), ctypes.create_string_buffer(4)
    driver.fail_copy.value = 700
    with pytest.raises(Internal, match="error 700"):
        lent.to_host(0, ctypes.addressof(data), 4)

    async def waits():
        nonlocal lent
        before = futures()
        for _ in range(1000):
            with pytest.raises(Unavailable, match="1 part of memory that it lent there is still in use"):
                await cuda.ready(0, 0)
        assert futures() - before < 10  # one for all of them, and what the last wait has
        waiting = [asyncio.ensure_future(cuda.ready(0, 60)) for _ in range(2)]
        await asyncio.sleep(0)
        del lent
        await asyncio.gather(*waiting)  # whoever waits now is told

    with fresh_loop() as loop:
        loop.run_until_complete(waits())


def test_copies_in_fail_as_copies_out_do(library, driver):
    cuda = Cuda(library)
    memory = cuda.open(handle(32), 0)
    driver.fail_copy.value = 700
    data = ctypes.create_string_buffer(4)
    with pytest.raises(Internal, match="copying 4 bytes of GPU memory failed: cuMemcpyHtoDAsync_v2: error 700"):
        memory.from_host(0, ctypes.addressof(data), 4)
    driver.fail_copy.value = 0
    cuda.open(handle(32), 0).from_host(0, ctypes.addressof(data), 4)


def test_a_copy_that_lacks_memory_of_the_gpu_does_not_blame_the_client(library, driver):
    memory = Cuda(library).open(handle(32), 0)
    driver.fail_copy.value = 2
    text = "copying 4 bytes .*: cuMemcpyHtoDAsync_v2: error 2. GPU 0 .*has no room .*: free .*there, and try again$"
    with pytest.raises(Internal, match=text):
        memory.from_host(0, ctypes.addressof(ctypes.create_string_buffer(4)), 4)


def test_a_device_that_cannot_be_set_up_is_the_request_s_error_and_is_tried_again(library, driver, caplog):
    cuda = Cuda(library)
    driver.fail_context.value = 101
    text = "^the server cannot use GPU 0: cuDevicePrimaryCtxRetain: error 101. If that goes on, start the server again"
    with pytest.raises(Unavailable, match=text):
        cuda.open(handle(32), 0)
    driver.fail_context.value = 2
    with pytest.raises(Unopened, match="^cuDevicePrimaryCtxRetain: error 2$") as refused:
        cuda.open(handle(32), 0)
    assert refused.value.is_full
    assert "lends no memory there" in caplog.messages[0] and "start the server again" in caplog.messages[0]
    assert "Free memory of this GPU" in caplog.messages[1] and "start the server again" not in caplog.messages[1]
    driver.fail_context.value = 0
    assert cuda.open(handle(32), 0).nbytes == 32


@pytest.mark.parametrize("code", [2, 719])
@pytest.mark.parametrize("fault", ["fail_context", "fail_stream"])
def test_a_device_that_has_never_worked_is_unusable_and_not_lost(library, driver, caplog, fault, code):
    cuda = Cuda(library)
    getattr(driver, fault).value = code
    for _ in range(3):
        assert f"error {code}" in in_thread(cuda.lane(0), partial(cuda.open, handle(32), 0), "region 'r'")
    assert cuda.conditions() == [GOOD._replace(is_unusable=True)] and lost(caplog) == []
    assert len([each for each in caplog.messages if each.startswith(f"the server cannot use {logged(0)} ")]) == 1
    getattr(driver, fault).value = 0
    refused = in_thread(cuda.lane(0), partial(cuda.open, handle(32, mark=0), 0), "region 'r'")
    assert refused == "cuIpcOpenMemHandle_v2: no context"  # a bad handle, and a good GPU
    assert cuda.conditions() == [GOOD]


@pytest.mark.parametrize("resets", [True, False])
@pytest.mark.parametrize("code", [2, 719])
@pytest.mark.parametrize("made", [0, 1])
def test_a_context_that_cannot_be_set_up_leaves_nothing_and_is_made_anew(library, driver, code, made, resets):
    """Out of memory, or of a context that is broken from then on, which the driver may not even reset."""
    cuda = Cuda(library)
    driver.fail_reset.value = 0 if resets else 719
    driver.fail_stream.value, driver.fail_stream_at.value = code, made
    for _ in range(5):
        with pytest.raises((Unavailable, Unopened), match=f"cuStreamCreate: error {code}"):
            cuda.open(handle(32), 0)
        assert (driver.retained.value, driver.streams_there.value) == (0, 0)
    driver.fail_stream.value = 0
    memory = cuda.open(handle(32), 0)
    memory.to_host(0, ctypes.addressof(ctypes.create_string_buffer(4)), 4)
    assert (driver.retained.value, driver.streams_there.value) == (1, 2)


def test_a_lost_context_is_not_held_behind_the_next_one(library, driver):
    """Nor what failed between the two: else the driver would not end a broken one with our last hold on it."""
    cuda, address = Cuda(library), ctypes.addressof(ctypes.create_string_buffer(4))
    for _ in range(3):
        memory = cuda.open(handle(32), 0)
        driver.fail_copy.value = 700
        with pytest.raises(Internal, match="error 700"):
            memory.to_host(0, address, 4)
        driver.fail_copy.value = 0
        given_back(cuda, 0)
        assert (driver.retained.value, driver.streams_there.value) == (0, 0)


def test_a_library_that_lacks_a_function_is_none(tmp_path):
    source = tmp_path / "cuda.c"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }")
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", tmp_path / "libcuda.so", source], check=True)
    with pytest.raises(CudaMissing, match="the NVIDIA driver's library cannot be used: .*cuDeviceGetCount"):
        Cuda(str(tmp_path / "libcuda.so"))
