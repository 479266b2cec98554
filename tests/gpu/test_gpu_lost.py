"""The server itself loses a GPU: what it opens there and what it lends are of one context, and come back together."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import FLOATS, GPU, MADE, NBYTES, RETURNED, STAYS, asked, ensemble, register
from tests.gpu.stand_in_driver import LAUNCH_FAILED, OUT_OF_MEMORY
from tests.loops import fresh_loop
from tests.system.helpers import until
from tisfast.errors import Internal, Unavailable
from tisfast.native.cuda import Cuda
from tisfast.native.region import DeviceRegion
from tisfast.operations.memory_closing import Closer, Uses
from tisfast.operations.slices import Pieces

VALUES = np.arange(NBYTES // 4, dtype=np.float32)


@pytest.fixture
def served(stand_in, serve, write_model):
    """A server with the ensemble m, whose second model fails with inputs in host memory."""
    write_model("m0", MADE, FLOATS + GPU)
    write_model("m1", RETURNED, FLOATS + GPU + STAYS)
    (write_model("m", "", ensemble("B", ("A", "x"), ("x", "B"))) / "1/model.py").unlink()
    return serve("--allow-client-shm=true").ready()


@pytest.fixture
def chain(served, connect):
    """A client of it."""
    return connect(served)


def answered(client, model, call):
    """The answer, or None where it is an error."""
    try:
        return client.infer(model, **call)
    except InferenceServerException:
        return None


def test_memory_of_the_server_s_own_is_lent_again_when_a_copy_of_a_region_has_lost_the_gpu(
    stand_in, served, chain, region
):
    given = region(chain, "given", VALUES)
    assert chain.infer("m", **asked(tritonclient.http)).as_numpy("B").tolist() == VALUES.tolist()
    stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
    with pytest.raises(InferenceServerException, match="unspecified launch failure"):
        chain.infer("m", **asked(tritonclient.http))
    with pytest.raises(InferenceServerException, match="must be unregistered and registered again"):
        chain.infer("m", **asked(tritonclient.http))
    again = "'given' already in manager: the server has lost GPU 0 since; unregister the region first"
    with pytest.raises(InferenceServerException, match=again):
        register(chain, "given", given)
    chain.unregister_cuda_shared_memory("given")  # waits for the end of those who have memory open that is lent there
    given.free()
    assert stand_in.counted()["freed_while_open"] == 0
    region(chain, "given", VALUES)
    for name in ("m0", "m1"):
        said = served.says(f"instance {name}_0_0 of model '{name}' (pid ")["message"]
        assert "was ended: the server has lost its GPU, and had lent it memory there" in said
    assert stand_in.counted()["freed_while_open"] == 0

    found = until(lambda: answered(chain, "m", asked(tritonclient.http)), "tensors stay on the GPU again", 5)
    assert found.as_numpy("B").tolist() == VALUES.tolist()


def test_a_busy_instance_that_was_lent_nothing_asks_again(stand_in, chain):
    call = {"inputs": [tritonclient.http.InferInput("A", [4], "FP32")]}
    call["inputs"][0].set_data_from_numpy(VALUES[:4])
    stand_in.fail("cuIpcGetMemHandle", OUT_OF_MEMORY, times=1)
    assert answered(chain, "m", call) is None
    found = until(lambda: answered(chain, "m", call), "it is lent memory in the end", 30)
    assert found.as_numpy("B").tolist() == VALUES[:4].tolist()


@pytest.mark.parametrize("finds", ["copy", "closing"])
def test_a_gpu_that_is_lost_while_it_hangs_closes_what_was_unregistered_with_its_context(stand_in, export, finds):
    """Not before others have let go of what was lent there, and nobody is told so before."""

    async def unregister():
        cuda, mine, other = Cuda(str(stand_in.library)), export(NBYTES), export(NBYTES)
        lane, begun, over = cuda.lane(0), threading.Event(), threading.Event()
        opened, used = [await lane.call(partial(cuda.open, each.handle, 0), 60) for each in (mine, other)]
        lent = await lane.call(partial(cuda.allocate, 0, 1 << 20), 60)
        for _ in range(2):
            await lane.passed()  # nothing refers to them there
        region = DeviceRegion("mine", opened, 0, mine.handle, NBYTES, 0)
        del opened
        lane.post(lambda: begun.set() or over.wait(60))
        await asyncio.to_thread(begun.wait, 60)
        left = [region]
        del region
        closing = Closer(cuda, Pieces()).closed(left)
        if finds == "copy":
            stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
            with pytest.raises(Internal, match="unspecified launch failure"):
                await used.lane(4).call(lambda: used.to_host(0, np.zeros(4, np.uint8).ctypes.data, 4), 60)
        else:
            stand_in.fail("cuIpcCloseMemHandle", LAUNCH_FAILED, times=1)
        over.set()
        for _ in range(4):
            await lane.passed()
        assert not closing.done.done()
        assert "1 part of memory that it lent there is still in use" in str(closing.waits(Uses()))
        del lent
        await closing.done
        assert closing.refusals == []
        mine.free()
        assert stand_in.counted()["freed_while_open"] == 0

    with fresh_loop() as loop:
        loop.run_until_complete(unregister())


def test_a_gpu_that_is_lost_in_any_call_is_begun_anew(stand_in, export):
    cuda, memory, there = Cuda(str(stand_in.library)), export(NBYTES), bytearray(4)
    memory.write(b"abcd")
    address = np.frombuffer(there, np.uint8).ctypes.data
    opened = cuda.open(memory.handle, 0)
    stand_in.fail("cuMemAlloc_v2", LAUNCH_FAILED, times=1)
    with pytest.raises(Unavailable, match="^allocating 4096 bytes .*: unspecified launch failure"):
        cuda.allocate(0, 4096)
    with pytest.raises(Internal, match="must be unregistered and registered again"):
        opened.to_host(0, address, 4)
    cuda.open(memory.handle, 0).to_host(0, address, 4)
    assert there == b"abcd"


@pytest.mark.parametrize("finds", ["closing", "copy"])
@pytest.mark.parametrize("on", [0, 1])
def test_a_lost_context_is_not_ended_while_a_copy_is_under_way_in_it(stand_in, export, on, finds):
    """Nor is that told as good.  on: the GPU that copies, of GPU 0's memory."""
    there, ended = np.zeros(8 << 20, np.uint8), stand_in.counted()["streams_ended"]
    address = there.ctypes.data

    async def copy():
        cuda, mine, other, third = Cuda(str(stand_in.library)), export(16 << 20), export(NBYTES), export(NBYTES)
        lane, held = cuda.lane(0), stand_in.counted()["operations_held"]
        source, closed = [await lane.call(partial(cuda.open, each.handle, 0), 60) for each in (mine, other)]
        target = await cuda.lane(1).call(partial(cuda.open, third.handle, 1), 60)
        work = partial(source.to_host, 0, address, 4) if on == 0 else partial(target.from_device, 0, source, 0, 4)
        with stand_in.holding(device=on):
            copies = asyncio.ensure_future((target if on else source).lane(4).call(work, 60, what="tensor 'A'"))
            await asyncio.to_thread(until, lambda: stand_in.counted()["operations_held"] > held, "it is under way")
            if finds == "closing":
                stand_in.fail("cuIpcCloseMemHandle", LAUNCH_FAILED, times=1)
                del closed
            else:
                stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
                with pytest.raises(Internal, match="launch failure"):
                    await lane.call(partial(source.to_host, 0, address, 8 << 20), 60)
            for _ in range(4):
                await lane.passed()
            assert stand_in.counted()["streams_ended"] == ended
            why = "and another one there has not ended (a copy of 4 bytes for tensor 'A'): it begins anew when that has"
            assert why in str(cuda.waits(0))
            for works in (partial(cuda.ready, 0, 0), partial(lane.call, partial(cuda.open, mine.handle, 0), 60)):
                with pytest.raises(Unavailable) as refused:
                    await works()
                assert f"launch failure), {why}. Try again in some seconds. " in str(refused.value)
            with pytest.raises(Internal, match="lost GPU 0 .* in .*registered again"):  # nothing new begins there
                target.from_device(0, source, 0, 4)
            assert not copies.done()
        with pytest.raises(Internal, match="copying 4 bytes .*: the server lost GPU 0 .* registered again"):
            await copies
        await cuda.ready(0, None)
        assert stand_in.counted()["streams_ended"] > ended and stand_in.counted()["reset_while_used"] == 0
        again = await lane.call(partial(cuda.open, mine.handle, 0), 60)
        await again.lane(4).call(partial(again.to_host, 0, address, 4), 60)

    with fresh_loop() as loop:
        loop.run_until_complete(copy())


def test_a_lost_gpu_whose_context_does_not_end_is_told(stand_in, export):
    async def waits():
        cuda, memory = Cuda(str(stand_in.library)), export(NBYTES)
        opened = await cuda.lane(0).call(partial(cuda.open, memory.handle, 0), 60)
        stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
        with stand_in.hanging("cuDevicePrimaryCtxReset_v2") as begun:
            with pytest.raises(Internal, match="launch failure"):
                opened.to_host(0, 0, 4)
            await asyncio.to_thread(until, begun, "it hangs")
            with pytest.raises(Unavailable, match="^GPU 0 .*hangs or is busy with others' work. Look"):
                await cuda.ready(0, 0.1)
        await cuda.ready(0, None)
        await cuda.lane(0).call(partial(cuda.open, memory.handle, 0), 60)

    with fresh_loop() as loop:
        loop.run_until_complete(waits())
