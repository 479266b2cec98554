"""GPU memory that runs out: in a Python model, in a framework's batch, and where the server lends some."""

from __future__ import annotations

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import BATCHED, FLOATS, GPU, RETURNED, ROWS, copies
from tests.gpu.stand_in_driver import OUT_OF_MEMORY
from tests.system.array_calls import executions
from tests.system.helpers import until
from tests.system.tensorrt_plans import doubler, parameters

MB = 1 << 20
ALLOCATING = """
import ctypes
import sys
import types
import triton_python_backend_utils as pb_utils

cuda = ctypes.CDLL("libcuda.so.1")

def allocate(nbytes):
    memory = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(nbytes))
    if code:
        raise RuntimeError("Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")
    return memory

class Pool:
    # As cupy's: it keeps what is free, until it is told to give it back.
    kept = []

    def free_all_blocks(self):
        while self.kept:
            cuda.cuMemFree_v2(self.kept.pop())

class TritonPythonModel:
    def initialize(self, args):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        cuda.cuInit(0)
        cuda.cuDeviceGet(ctypes.byref(device), 0)
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        cuda.cuCtxSetCurrent(context)
        pool = Pool()
        sys.modules["cupy"] = types.SimpleNamespace(
            get_default_memory_pool=lambda: pool, get_default_pinned_memory_pool=Pool)

    def execute(self, requests):
        # A megabyte for each; a batch of one leaves its own behind in the pool.
        held = [allocate(len(requests) << 20)]
        print("executed", len(requests), flush=True)
        if len(requests) == 1:
            Pool.kept += held
        else:
            cuda.cuMemFree_v2(held.pop())
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", pb_utils.get_input_tensor_by_name(r, "B").as_numpy())])
                for r in requests]
"""


@pytest.fixture
def allocating(stand_in, serve, write_model, connect):
    """allocating(retry): (server, client) of a model with 3 MB of GPU memory left."""

    def start(retry):
        config = FLOATS + GPU + "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 300000 }"
        write_model("m", ALLOCATING, config + parameters(OUT_OF_MEMORY_RETRY=retry))
        server = serve().ready()
        stand_in.set(device_bytes=stand_in.allocated() + 3 * MB)
        return server, connect(server, tritonclient.grpc)

    return start


def infer_at_once(client, numbers):
    """Each number's answer, or its error, of requests that make one batch."""
    found, done = {}, []

    def ask(number):
        tensor = tritonclient.grpc.InferInput("B", [1, 1], "FP32")
        tensor.set_data_from_numpy(np.full((1, 1), number, np.float32))

        def answered(result, error):
            found[number] = error or float(result.as_numpy("B")[0, 0])
            done.append(number)

        client.async_infer("m", [tensor], answered)

    for number in numbers:
        ask(number)
    until(lambda: len(done) == len(numbers), "all are answered")
    return found


def test_a_batch_without_room_is_executed_in_halves_where_that_is_allowed(allocating, stand_in):
    server, client = allocating("halves")
    assert infer_at_once(client, range(4)) == {number: float(number) for number in range(4)}
    server.says("ran out of GPU memory executing a batch of 4")
    server.says("its halves are executed")
    assert executions(server, "m")[0] == 4


def test_caches_are_emptied_before_it_is_executed_again(allocating, stand_in):
    server, client = allocating("once")
    for number in range(3):
        assert infer_at_once(client, [number]) == {number: number}  # the pool has all of the room now
    assert infer_at_once(client, [7, 8]) == {7: 7.0, 8: 8.0}
    server.says("the caches of cupy were emptied; the batch is executed again")


def test_without_leave_it_is_answered_and_the_instance_lives_on(allocating, stand_in):
    server, client = allocating("never")
    worker = server.worker("m_0_0")
    found = infer_at_once(client, range(4))
    for error in found.values():
        assert "UNAVAILABLE" in str(error) and "ran out of GPU memory executing a batch of 4" in str(error)
        assert "retry later, with a smaller batch" in str(error)
    assert infer_at_once(client, [1, 2]) == {1: 1.0, 2: 2.0}
    assert server.worker("m_0_0") == worker


@pytest.mark.parametrize(("times", "retry"), [(1, "once"), (2, "halves"), (3, "halves")])
def test_a_batch_of_a_plan_is_executed_again(caller, write_plan, stand_in, times, retry):
    write_plan("m", doubler(), BATCHED + "\n" + parameters(OUT_OF_MEMORY_RETRY=retry))
    asked = caller()
    asked.given.write(ROWS.tobytes())
    calls = [asked.asked({"X": ROWS[at : at + 1]}, {}, {"Y": (16 * at, 16)}) for at in range(8)]
    stand_in.fail("cuMemcpyHtoDAsync_v2", OUT_OF_MEMORY, times=times, pid=asked.server.worker("m_0_0"))
    asked.infer_at_once("m", calls)
    assert np.frombuffer(asked.wanted.read(8 * 16), np.float32).tolist() == (ROWS[:8] * 2).ravel().tolist()
    asked.server.says("ran out of GPU memory executing a batch of 8")
    assert stand_in.counted()["faults_met"] == times


def test_a_batch_of_a_plan_that_has_no_room_is_answered(caller, write_plan, stand_in):
    write_plan("m", doubler())
    asked = caller()
    asked.given.write(ROWS.tobytes())
    call = asked.asked({"X": ROWS[:8]}, {}, {"Y": (0, 128)})
    stand_in.fail("cuMemcpyHtoDAsync_v2", OUT_OF_MEMORY, times=1, pid=asked.server.worker("m_0_0"))
    with pytest.raises(InferenceServerException, match="ran out of GPU memory .* retry later"):
        asked.client.infer("m", **call)
    asked.client.infer("m", **call)
    assert np.frombuffer(asked.wanted.read(128), np.float32).tolist() == (ROWS[:8] * 2).ravel().tolist()


def test_where_there_is_no_room_to_lend_tensors_go_by_way_of_host_memory(stand_in, started_chain):
    server, client = started_chain(RETURNED.replace("assert not any(tensor.is_cpu() for tensor in found)", ""))
    values = np.arange(MB // 4, dtype=np.float32)
    tensor = tritonclient.http.InferInput("A", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    stand_in.set(device_bytes=stand_in.allocated() + 4 * MB)  # room for the model's own
    before = stand_in.counted()
    for _ in range(2):
        assert client.infer("m", [tensor]).as_numpy("B").tolist() == values.tolist()
    assert copies(stand_in, before) == [2, 2, 0]
    server.says("allocating 16777216 bytes of GPU memory failed: cuMemAlloc_v2: out of memory")
