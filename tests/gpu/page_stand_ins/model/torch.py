"""As much of torch as the example of docs/gpu.md uses, on the stand-in for the driver: float32 on the GPU."""

import ctypes

import numpy
from tisfast_worker import dlpack

_library = ctypes.CDLL("libcuda.so.1")
_library.cuMemFree_v2.argtypes = (ctypes.c_uint64,)
_FP32, _GPU = 11, (2, 0)  # the protocol's number, DLPack's device


def _call(name, *arguments):
    code = getattr(_library, name)(*arguments)
    assert code == 0, (name, code)


def _begin():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuInit", 0)
    _call("cuDeviceGet", ctypes.byref(device), 0)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call("cuCtxSetCurrent", context)


class _Owned:
    """Memory of this library's own."""

    def __init__(self, nbytes):
        address = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        self.address = address.value

    def __del__(self):
        _library.cuMemFree_v2(self.address)


class Tensor:
    """memory: has the address, and is kept."""

    def __init__(self, memory, shape):
        self._memory, self._shape = memory, shape

    def cuda(self):
        """It is there."""
        return self

    def __add__(self, number):
        _begin()
        values = numpy.empty(self._shape, numpy.float32)
        at, nbytes = values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes)
        _call("cuMemcpyDtoH_v2", at, ctypes.c_uint64(self._memory.address), nbytes)
        values += number
        made = _Owned(values.nbytes)
        _call("cuMemcpyHtoD_v2", ctypes.c_uint64(made.address), at, nbytes)
        return Tensor(made, self._shape)

    def __dlpack_device__(self):
        return _GPU

    def __dlpack__(self, stream=None):
        return dlpack.capsule_of(self, self._memory.address, list(self._shape), _FP32, _GPU)


def from_dlpack(tensor):
    """Of a tensor on the GPU, without a copy."""
    code, _, memory, device = dlpack.adopt(tensor)
    assert (code, device) == (_FP32, _GPU), (code, device)
    return Tensor(memory, memory.shape)
