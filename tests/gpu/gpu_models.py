"""Models whose tensors stay on a GPU, and what their clients say."""

from __future__ import annotations

import base64
import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.system.helpers import until

NBYTES = 1 << 20
"""Of a client's region."""
GPU = "instance_group [ { kind: KIND_GPU gpus: [ 0 ] } ]"
STAYS = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }'
CONFIG = """
backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
IDENTITY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "A") for request in requests]
        assert not any(tensor.is_cpu() for tensor in found)
        return [pb_utils.InferenceResponse([self.answer(tensor)]) for tensor in found]

    def answer(self, tensor):
        return pb_utils.Tensor.from_dlpack("B", tensor)
"""
RETURNED = IDENTITY.replace('pb_utils.Tensor.from_dlpack("B", tensor)', "tensor").replace('"A"', '"B"')
"""The input itself, which has the output's name."""
WHERE = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "A") for request in requests]
        print("on the CPU:", [tensor.is_cpu() for tensor in tensors], flush=True)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("B", t.as_numpy())]) for t in tensors]
"""
FLOATS = CONFIG.replace('"A"', '"B"')  # names of both are B, so a model may return its input
MADE = """
import ctypes
import triton_python_backend_utils as pb_utils
from tisfast_worker import dlpack

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemFree_v2.argtypes = (ctypes.c_uint64,)

def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name

class Made:
    # A tensor in memory of the model's own, which is freed as soon as nobody refers to it.
    def __init__(self, array):
        self.address, self.shape = ctypes.c_uint64(), array.shape
        call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(array.nbytes))
        call("cuMemcpyHtoD_v2", self.address, array.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(array.nbytes))

    def __del__(self):
        cuda.cuMemFree_v2(self.address.value)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, stream=None):
        return dlpack.capsule_of(self, self.address.value, list(self.shape), 11, (2, 0))

class TritonPythonModel:
    def initialize(self, args):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        call("cuInit", 0)
        call("cuDeviceGet", ctypes.byref(device), 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuCtxSetCurrent", context)

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "B").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("B", Made(array))]) for array in arrays]
"""
"""It makes a tensor on the GPU of its input in host memory."""
ROWS = np.arange(64, dtype=np.float32).reshape(16, 4)
"""What plans are given, eight rows at most."""
BATCHED = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 200000 }"
COPIES = ("host_to_device", "device_to_host", "device_to_device")


def register(client, name, memory):
    client.register_cuda_shared_memory(name, base64.b64encode(memory.handle), 0, memory.nbytes)


@contextlib.contextmanager
def unregistering(server, name):
    """Unregister a region that is in use: inside, its name is gone; behind what is done there, it is closed."""
    family = "/v2/cudasharedmemory"
    with ThreadPoolExecutor(1) as threads:
        closed = threads.submit(server.ask, "POST", f"{family}/region/{name}/unregister", {})
        until(lambda: name not in str(server.ask("GET", f"{family}/status")[1]), "its name is gone")
        yield
        assert closed.result(60) == (200, {})


def asked(module, nbytes=1 << 20, offset=0, output=None, name="A", region="given"):  # noqa: PLR0917
    tensor = module.InferInput(name, [nbytes // 4], "FP32")
    tensor.set_shared_memory(region, nbytes, offset)
    wanted = module.InferRequestedOutput("B")
    if output:
        wanted.set_shared_memory(output, nbytes, offset)
    return {"inputs": [tensor], "outputs": [wanted]}


STEP = """step {{
    model_name: "m{0}" model_version: -1 input_map {{ key: "{1}" value: "{2}" }} output_map {{ key: "B" value: "{3}" }}
}}"""


def ensemble(name, *steps):
    """Of models m0, m1, ...; name: of their input; steps: tensors from and to."""
    return f"""
platform: "ensemble"
input [ {{ name: "A" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "B" data_type: TYPE_FP32 dims: [ -1 ] }} ]
ensemble_scheduling {{ {" ".join(STEP.format(at, name, *ends) for at, ends in enumerate(steps))} }}
"""


def copies(gpu, before):
    """Made since `before`, in the order of COPIES."""
    after = gpu.counted()
    return [after[name] - before[name] for name in COPIES]
