"""Host tensors go to a model's GPU from pinned memory, and come back so: every copy counted, and when it cannot be."""

from __future__ import annotations

import os
import re
import signal
import threading

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.gpu.gpu_models import CONFIG, GPU
from tests.gpu.stand_in_driver import LAUNCH_FAILED, OUT_OF_MEMORY
from tests.system.helpers import client_of_thread, until
from tests.unkillable import SOON, unkillable

INVALID_VALUE = 1
NBYTES = 16 << 20
VALUES = np.arange(NBYTES // 4, dtype=np.float32)
COUNTED = ("host_to_device", "device_to_host", "pinned_copies", "host_registered")
# As torch.from_numpy(input).to("cuda", non_blocking=True): a copy on a stream, and an output that stays on the GPU.
MODEL = """
import ctypes
import numpy as np
import triton_python_backend_utils as pb_utils
from tisfast_worker import dlpack

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemFree_v2.argtypes = (ctypes.c_uint64,)
stream, memory = ctypes.c_void_p(), {}

def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name

def begin():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", ctypes.byref(stream), 1)

class OnGpu:
    def __init__(self, array):
        self.address, self.shape = ctypes.c_uint64(), array.shape
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(array.nbytes))
        self.source = array  # until the copy is done
        host, nbytes = array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes)
        call("cuMemcpyHtoDAsync_v2", self.address, host, nbytes, stream)

    def __del__(self):
        cuda.cuMemFree_v2(self.address.value)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        return dlpack.capsule_of(self, self.address.value, list(self.shape), 11, (2, 0))

class TritonPythonModel:
    def initialize(self, args):
        begin()

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "A").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("B", OnGpu(each))]) for each in arrays]
"""
LATE = MODEL.replace("        begin()", "        pass").replace(
    "        arrays =", "        if not stream.value:\n            begin()\n        arrays ="
)
# Rows of a batch as one array, which goes to the GPU in one copy and comes back into the answer's place or beside it.
ROWS = (
    MODEL[: MODEL.index("class TritonPythonModel")]
    + """
class TritonPythonModel:
    def initialize(self, args):
        begin()

    def execute_batch(self, inputs):
        array, memory = inputs["A"], ctypes.c_uint64()
        span = array.strides[0] * (len(array) - 1) + array[0].nbytes
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(span))
        host = ctypes.c_void_p(array.__array_interface__["data"][0])
        call("cuMemcpyHtoDAsync_v2", memory, host, ctypes.c_size_t(span), stream)
        call("cuStreamSynchronize", stream)
        call("cuMemFree_v2", memory)
        print("rows:", len(array), flush=True)
        return {"B": array * 2}
"""
)
# It keeps a copy on the GPU, which it does not wait for, and answers with the one before.
KEEPS = (
    MODEL[: MODEL.index("class TritonPythonModel")]
    + """
class TritonPythonModel:
    def initialize(self, args):
        begin()
        self.kept = None

    def execute(self, requests):
        found = [pb_utils.Tensor("B", self.exchanged(request)) for request in requests]
        return [pb_utils.InferenceResponse([tensor]) for tensor in found]

    def exchanged(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "A").as_numpy()
        found = np.zeros(len(array), np.float32)
        if self.kept is not None:
            host, nbytes = found.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(found.nbytes)
            call("cuMemcpyDtoHAsync_v2", host, self.kept.address, nbytes, stream)
            call("cuStreamSynchronize", stream)
        self.kept = OnGpu(array)
        self.kept.source = None
        return found
"""
)
SENDS = KEEPS.replace(
    "        return [pb_utils.InferenceResponse([tensor]) for tensor in found]\n",
    """        for request, tensor in zip(requests, found):
            response = pb_utils.InferenceResponse([tensor])
            request.get_response_sender().send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""",
)
HOST = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "A").as_numpy() for request in requests]
        libraries = open("/proc/self/maps").read()
        print("libcuda is", "loaded" if "libcuda" in libraries else "not loaded", flush=True)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", each * 1)]) for each in arrays]
"""


@pytest.fixture
def started(stand_in, serve, write_model, connect):
    """started(model): (server, HTTP client) of it, on GPU 0."""

    def start(model, *flags, config=CONFIG + GPU):
        write_model("m", model, config)
        server = serve(*flags).ready()
        return server, connect(server, tritonclient.http)

    return start


def infer(client, values=VALUES):
    tensor = tritonclient.http.InferInput("A", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return client.infer("m", [tensor]).as_numpy("B")


def is_right(client, values=VALUES):
    return np.array_equal(infer(client, values), values)


def counted(stand_in, before):
    after = stand_in.counted()
    return [after[name] - before[name] for name in COUNTED]


def pool(server, which):
    return float(re.search(rf"^nv_pinned_memory_pool_{which}_bytes (.+)$", server.metrics(), re.MULTILINE)[1])


def test_16_mb_go_to_the_gpu_and_back_as_pinned_copies(started, stand_in):
    _, client = started(MODEL)
    before = stand_in.counted()
    for _ in range(5):
        assert is_right(client)
    assert counted(stand_in, before) == [5, 5, 10, 2]
    assert stand_in.counted()["host_bytes"] - before["host_bytes"] == 10 * NBYTES  # and no copy on the host beside them


def test_over_grpc_too(started, stand_in):
    server, _ = started(MODEL)
    port = server.said(lambda r: r.get("event") == "ready", "ready")["grpc_port"]
    before = stand_in.counted()
    tensor = tritonclient.grpc.InferInput("A", list(VALUES.shape), "FP32")
    tensor.set_data_from_numpy(VALUES)
    with tritonclient.grpc.InferenceServerClient(f"localhost:{port}") as client:
        assert np.array_equal(client.infer("m", [tensor]).as_numpy("B"), VALUES)
    assert counted(stand_in, before) == [1, 1, 2, 2]


def test_what_a_killed_process_has_pinned_counts_until_it_has_ended(serve, write_model, connect, stand_in):
    write_model("m", MODEL, CONFIG + GPU)
    server = serve(f"--pinned-memory-pool-byte-size={40 << 20}", fault=SOON).ready()
    client = connect(server, tritonclient.http)
    assert is_right(client)
    used, before = pool(server, "used"), stand_in.counted()["host_registered"]
    assert used > 2 * NBYTES
    pid = server.worker("m_0_0")
    with unkillable(pid):
        os.kill(pid, signal.SIGKILL)
        server.says(f"(pid {pid}) began to end and has not ended")
        until(lambda: server.worker("m_0_0") != pid and client.is_model_ready("m"), "there is another one")
        assert is_right(client)
        assert (pool(server, "used"), stand_in.counted()["host_registered"]) == (used, before)  # there is no room
        server.says(f"other instances have {int(used)}, and all may have {40 << 20}")
    until(lambda: pool(server, "used") == 0, "it has none")


def test_what_is_pinned_is_bounded_told_and_let_go_of(started, stand_in):
    server, client = started(MODEL, f"--pinned-memory-pool-byte-size={20 << 20}")
    before = stand_in.counted()
    for _ in range(3):
        assert is_right(client)
    assert counted(stand_in, before) == [3, 3, 3, 1]  # there is room for the input alone
    server.says("--pinned-memory-pool-byte-size has the server allow more")
    assert pool(server, "total") == 20 << 20
    assert NBYTES < pool(server, "used") <= 20 << 20
    worker = server.worker("m_0_0")
    os.kill(worker, signal.SIGKILL)
    until(lambda: pool(server, "used") == 0, "a worker that is dead has none")
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "the model is back")
    assert is_right(client)


def test_nothing_is_pinned_with_a_pool_of_nothing(started, stand_in):
    _, client = started(MODEL, "--pinned-memory-pool-byte-size=0")
    before = stand_in.counted()
    assert is_right(client)
    assert counted(stand_in, before) == [1, 1, 0, 0]


def test_all_is_unregistered_when_the_instance_ends(started, stand_in):
    server, client = started(MODEL)
    before = stand_in.counted()
    assert is_right(client)
    server.end()
    after = stand_in.counted()
    assert after["host_registered"] - before["host_registered"] == 2
    assert after["host_unregistered"] - before["host_unregistered"] == 2


@pytest.mark.parametrize("code", [OUT_OF_MEMORY, INVALID_VALUE])
def test_a_driver_that_refuses_leaves_plain_memory(started, stand_in, code):
    server, client = started(MODEL)
    before = stand_in.counted()
    stand_in.fail("cuMemHostRegister_v2", code)
    for _ in range(3):
        assert is_right(client)
    assert counted(stand_in, before) == [3, 3, 0, 0]
    server.says("the driver refuses to register")
    assert pool(server, "used") == 0  # others can have it


@pytest.mark.parametrize("call", ["cuMemHostUnregister", "cuCtxSynchronize"])
def test_what_the_driver_does_not_unregister_stays_pinned_and_is_told_once(started, stand_in, call):
    server, client = started(MODEL)
    before = stand_in.counted()
    assert is_right(client)
    stand_in.fail(call, OUT_OF_MEMORY, pid=server.worker("m_0_0"))
    said = server.says("bytes of host memory of instance m_0_0 of model 'm' (pid ")
    assert f"({call}: out of memory)" in said["message"]
    assert pool(server, "used") > 2 * NBYTES  # no page of it is given back
    stand_in.fail(call, 0)
    assert is_right(client)  # in the same places, which are in their pieces still
    assert stand_in.counted()["host_unregistered"] == before["host_unregistered"]
    until(lambda: pool(server, "used") == 0, "it is tried again when the instance is idle")
    after = stand_in.counted()
    assert after["host_unregistered"] - before["host_unregistered"] == 2
    assert is_right(client)
    assert stand_in.counted()["host_registered"] - after["host_registered"] == 2  # it pins again
    assert server.text().count("stay pinned") == 1


def test_a_model_that_never_uses_cuda_gets_none(started, stand_in):
    server, client = started(HOST)
    before = stand_in.counted()
    for _ in range(3):
        assert is_right(client)
    server.says("libcuda is not loaded")
    assert counted(stand_in, before) == [0, 0, 0, 0]


def test_a_model_that_begins_late_is_noticed(started, stand_in):
    _, client = started(LATE)
    before = stand_in.counted()
    for _ in range(4):
        assert is_right(client)
    assert counted(stand_in, before) == [4, 4, 7, 2]  # the first input came before the model had a context


@pytest.mark.parametrize("model", [KEEPS, SENDS], ids=["answers", "sends"])
def test_memory_that_the_gpu_still_reads_is_not_used_again(started, stand_in, model):
    _, client = started(model)
    values = VALUES[: 1 << 18]
    assert infer(client, values).tolist() == [0] * len(values)
    stand_in.set(delay_us=300_000)
    for at in range(3):
        assert np.array_equal(infer(client, values + at + 1), values + at), at
    assert stand_in.counted()["used_unpinned"] == 0


@pytest.mark.parametrize("mebibytes", [24, 256])
def test_tensors_of_all_sizes_are_copied_whole(started, stand_in, mebibytes):
    """The stand-in refuses, as the driver does, what reaches over the end of a registered range."""
    server, _ = started(MODEL, f"--pinned-memory-pool-byte-size={mebibytes << 20}")
    sizes = np.random.default_rng(33).choice([1, 100, 5000, 17000, 40000, 300000, 1 << 20, 3 << 20], 60)
    before = stand_in.counted()

    def ask(port, those):
        with client_of_thread(f"127.0.0.1:{port}") as mine:
            results.extend(is_right(mine, VALUES[:size]) for size in those)

    results = []
    threads = [threading.Thread(target=ask, args=(server.port, sizes[at::3])) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [True] * 60
    done = stand_in.counted()
    large = int(np.count_nonzero(sizes * 4 >= 65536))
    assert done["pinned_copies"] - before["pinned_copies"] >= (2 * large if mebibytes == 256 else 1)
    assert done["used_after_free"] == before["used_after_free"]


def test_small_tensors_beside_a_large_one_are_copied_whole(started, stand_in):
    """The large one's piece would begin in the middle of the second one."""
    names = "CDA"
    inputs = "".join(f'input [ {{ name: "{name}" data_type: TYPE_FP32 dims: [ -1 ] }} ]' for name in names)
    output = 'output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]'
    code = MODEL.replace(
        "        arrays =",
        "        all_of_them = [OnGpu(each.as_numpy()) for request in requests for each in request.inputs()]\n"
        '        call("cuStreamSynchronize", stream)\n        arrays =',
    )
    _, client = started(code, config=f'backend: "python" {inputs} {output} {GPU}')
    tensors = []
    for name, nbytes in zip(names, (60 << 10, 60 << 10, 200 << 10), strict=True):
        tensors.append(tritonclient.http.InferInput(name, [nbytes // 4], "FP32"))
        tensors[-1].set_data_from_numpy(VALUES[: nbytes // 4])
    for _ in range(3):
        assert np.array_equal(client.infer("m", tensors).as_numpy("B"), VALUES[: 50 << 10])
    assert stand_in.counted()["host_registered"] > 0


def test_a_batch_that_is_one_array_is_in_one_piece(started, stand_in):
    batching = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 500000 preferred_batch_size: [ 4 ] }"
    server, _ = started(ROWS, config=CONFIG + GPU + batching)
    rows = VALUES[: 75 << 10].reshape(1, -1)
    before = stand_in.counted()

    def ask():
        with client_of_thread(f"127.0.0.1:{server.port}") as mine:
            results.append(np.array_equal(infer(mine, rows), rows * 2))

    for _ in range(3):
        results = []
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert results == [True] * 4
    server.says("rows: 4")
    copied = counted(stand_in, before)
    assert copied[2] > 0


def test_a_copy_to_the_host_that_fails_is_told_and_the_next_is_right(started, stand_in):
    _, client = started(MODEL)
    assert is_right(client)
    stand_in.fail("cuMemcpyDtoHAsync_v2", OUT_OF_MEMORY, times=1)
    with pytest.raises(InferenceServerException, match="copying 16777216 bytes of tensor 'B' from GPU 0"):
        infer(client)
    assert is_right(client)


def test_an_instance_that_loses_its_gpu_in_such_a_copy_is_started_again(started, stand_in):
    server, client = started(MODEL)
    assert is_right(client)
    worker = server.worker("m_0_0")
    stand_in.fail("cuMemcpyDtoHAsync_v2", LAUNCH_FAILED, times=1)
    with pytest.raises(InferenceServerException, match="unspecified launch failure"):
        infer(client)
    until(lambda: server.worker("m_0_0") != worker and client.is_model_ready("m"), "the model is back")
    assert is_right(client)
