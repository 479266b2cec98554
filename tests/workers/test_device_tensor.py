"""Tensors that a model leaves on a GPU, with a C stand-in for the driver (there is no GPU where these tests run)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRIVER = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static int context, pushed;
static int fails(const char *what) { const char *name = getenv("FAILS"); return name && !strcmp(name, what) ? 700 : 0; }
int cuInit(unsigned flags) { return (int)flags + fails("cuInit"); }
int cuDeviceGet(int *d, int n) { *d = n + 10; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { context = d; *c = &context; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return d == context && !pushed ? 0 : 201; }
int cuCtxPushCurrent_v2(void *c) { pushed += c == &context; return 0; }
int cuCtxPopCurrent_v2(void **c) { *c = &context; pushed--; return 0; }
int cuCtxSynchronize(void) { return pushed == 1 ? 0 : 201; }
/* Device memory is host memory with every byte turned over. */
int cuStreamCreate(void **s, unsigned flags) { *s = &pushed; return flags == 1 && pushed == 1 ? 0 : 201; }
int cuStreamSynchronize(void *s) { return s == &pushed && pushed == 1 ? 0 : 201; }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) {
    for (size_t i = 0; i < n; i++) ((unsigned char *)to)[i] = (unsigned char)~((unsigned char *)(uintptr_t)from)[i];
    return s == &pushed && pushed == 1 && context == 13 ? fails("cuMemcpyDtoHAsync_v2") : 201;
}
"""
# A library's tensor on GPU 3, and a model's thread that answers with it.
SCRIPT = """
import ctypes, struct, sys
sys.path[:0] = ["workers", "perf/micro"]
import numpy as np
import triton_python_backend_utils as pb
from tisfast_worker import dlpack, native
from worker_loop import Driver

class OnGpu:
    def __init__(self, values):
        self.values, self.bytes = values, np.invert(np.frombuffer(values.tobytes(), np.uint8))
    def __dlpack_device__(self):
        return (2, 3)
    def __dlpack__(self, stream=None):
        assert stream == 1
        address = self.bytes.__array_interface__["data"][0]
        return dlpack.capsule_of(self.bytes, address, list(self.values.shape), 11, (2, 3))

values = np.arange(int(sys.argv[1]), dtype=np.float32)
tensor = pb.Tensor.from_dlpack("OUTPUT0", OnGpu(values))
assert not tensor.is_cpu() and tensor.__dlpack_device__() == (2, 3)
assert tensor.shape() == [len(values)] and tensor.triton_dtype() == 11
again = pb.Tensor.from_dlpack("OUTPUT1", tensor)
assert not again.is_cpu()
try:
    tensor.as_numpy()
except pb.TritonModelException as error:
    assert str(error).startswith("Tensor is stored in GPU and cannot be converted to NumPy."), error
else:
    raise AssertionError("as_numpy() of a GPU tensor")
driver = Driver(lambda requests: [pb.InferenceResponse([tensor, again]) for _ in requests], 4)
try:
    driver.burst(1)
except AssertionError:  # an error in place of the answer: its text is in the arena
    sys.exit(driver.plane.outputs.memory[:].replace(bytes(1), b"").decode(errors="replace"))
assert driver.plane.outputs.memory.find(values.tobytes()) > 0
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "cuda.c").write_text(DRIVER)
    compiler = os.environ.get("CC", "cc").split()
    command = [*compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "cuda.c"]
    subprocess.run(command, check=True)
    return folder


def run(folder, count=6, **more):
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, "-c", SCRIPT, str(count)]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("count", [6, 6000])
def test_it_stays_on_the_gpu_until_its_bytes_travel(driver, count):
    done = run(driver, count)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("count", "nbytes"), [(6, 24), (6000, 48000)])  # each by itself, and both together
@pytest.mark.parametrize("function", ["cuInit", "cuMemcpyDtoHAsync_v2"])
def test_what_the_driver_refuses_is_said(driver, function, count, nbytes):
    names = "tensor 'OUTPUT0'" if count == 6 else "tensors 'OUTPUT0', 'OUTPUT1'"
    text = f"copying {nbytes} bytes of {names} from GPU 3 to the host failed: {function}: error 700"
    assert text in run(driver, count, FAILS=function).stderr


def test_without_a_driver_it_is_said(tmp_path):
    assert "tensor 'OUTPUT0' from GPU 3 to the host failed: the NVIDIA driver cannot be loaded" in run(tmp_path).stderr
