"""Programs that use a GPU already when they start a server: their driver works before, in and after requests.

A process that is forked from one that has initialised CUDA cannot use it, in the stand-in as in the real driver.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.system.helpers import ROOT, SECONDS_MAX

PROGRAM = """
import ctypes
import json
import os
import sys

import numpy as np
import psutil
from numpy.typing import NDArray

forks = []
os.register_at_fork(before=lambda: forks.append(os.getpid()))
driver = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    code = getattr(driver, name)(*arguments)
    assert code == 0, f"{name} failed with {code} in process {os.getpid()}"


device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(64))


def through_the_gpu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    call("cuCtxSetCurrent", context)
    found = np.zeros_like(x)
    call("cuMemcpyHtoD_v2", memory, x.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(x.nbytes))
    call("cuMemcpyDtoH_v2", found.ctypes.data_as(ctypes.c_void_p), memory, ctypes.c_size_t(x.nbytes))
    return found * 2


def of_a_worker(x: NDArray[np.float32]) -> NDArray[np.float32]:
    import ctypes

    return x * 2 + ctypes.CDLL("libcuda.so.1").cuInit(0)


def forked():
    # Children that are this program still, and not another one.
    mine = psutil.Process().cmdline()
    return [each.pid for each in psutil.Process().children(recursive=True) if each.cmdline() == mine]


X = np.arange(4, dtype=np.float32)
"""
FUNCTIONS = """
import tisfast

with tisfast.serve(through_the_gpu, http_port=0, grpc_port=None) as server:
    server.add(of_a_worker, processes=1)
    answers = [server.client(name)(X).tolist() for name in server.models]
    children = forked()
"""
PYTRITON = """
from tisfast.pytriton.client import ModelClient
from tisfast.pytriton.decorators import batch
from tisfast.pytriton.model_config import Tensor
from tisfast.pytriton.triton import Triton, TritonConfig


@batch
def infer(x):
    return [through_the_gpu(x)]


tensor = {"dtype": np.float32, "shape": (4,)}
with Triton(config=TritonConfig(http_port=0, grpc_port=0, metrics_port=0)) as triton:
    triton.bind("m", infer, inputs=[Tensor(name="x", **tensor)], outputs=[Tensor(name="y", **tensor)])
    with ModelClient(f"http://{triton.http_address}", "m") as client:
        answers = [client.infer_sample(X)["y"].tolist()]
    children = forked()
"""
END = """
answers.append(through_the_gpu(X).tolist())
call("cuMemFree_v2", memory)
print(json.dumps([answers, children, forks]))
"""


@pytest.mark.parametrize(("code", "asked"), [(FUNCTIONS, 2), (PYTRITON, 1)], ids=["functions", "pytriton"])
def test_a_program_that_uses_a_gpu_serves_and_is_not_forked(gpu, tmp_path, code, asked):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code + END], capture_output=True, text=True, timeout=4 * SECONDS_MAX,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTRITON_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers, children, forks = json.loads(done.stdout)
    assert answers == [[0, 2, 4, 6]] * (asked + 1)
    assert (children, forks) == ([], [])
    assert gpu.counted()["used_after_free"] == 0
