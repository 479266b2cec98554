"""See the package.  Each function gives (error, ...)."""

from __future__ import annotations

import ctypes
from enum import IntEnum

from cuda.bindings.driver import called

CUDA_IPC_HANDLE_SIZE = 64
_allocated: dict[int, int] = {}  # bytes by address, of device memory


class cudaError_t(IntEnum):  # noqa: N801 - cuda-python's names
    cudaSuccess = 0
    cudaErrorUnknown = 999


class cudaDeviceAttr(IntEnum):  # noqa: N801
    cudaDevAttrUnifiedAddressing = 41


class cudaMemcpyKind(IntEnum):  # noqa: N801
    cudaMemcpyDefault = 4


class cudaIpcMemHandle_t(ctypes.Structure):  # noqa: N801
    _fields_ = (("reserved", ctypes.c_ubyte * CUDA_IPC_HANDLE_SIZE),)

    def getPtr(self) -> int:  # noqa: N802
        return ctypes.addressof(self)


class Stream(ctypes.c_void_p):
    def getPtr(self) -> int:  # noqa: N802
        return ctypes.addressof(self)


def _done(name: str, *arguments: object) -> cudaError_t:
    return cudaError_t(called(name, *arguments))


def cudaGetErrorString(error: cudaError_t) -> tuple[cudaError_t, bytes]:  # noqa: N802
    return cudaError_t.cudaSuccess, error.name.encode()


def cudaGetDevice() -> tuple[cudaError_t, int]:  # noqa: N802
    return cudaError_t.cudaSuccess, 0


def cudaSetDevice(number: int) -> tuple[cudaError_t]:  # noqa: N802
    device, context = ctypes.c_int(), ctypes.c_void_p()
    done = _done("cuInit", 0) or _done("cuDeviceGet", ctypes.byref(device), number)
    done = done or _done("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return (done or _done("cuCtxSetCurrent", context),)


def cudaDeviceGetAttribute(_attribute: cudaDeviceAttr, _device: int) -> tuple[cudaError_t, int]:  # noqa: N802
    return cudaError_t.cudaSuccess, 1


def cudaMalloc(nbytes: int) -> tuple[cudaError_t, int]:  # noqa: N802
    address = ctypes.c_uint64()
    done = _done("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
    _allocated[address.value] = nbytes
    return done, address.value


def cudaFree(address: int) -> tuple[cudaError_t]:  # noqa: N802
    _allocated.pop(address)
    return (_done("cuMemFree_v2", ctypes.c_uint64(address)),)


def cudaIpcGetMemHandle(address: int) -> tuple[cudaError_t, cudaIpcMemHandle_t]:  # noqa: N802
    handle = cudaIpcMemHandle_t()
    return _done("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address)), handle


def cudaStreamCreate() -> tuple[cudaError_t, Stream]:  # noqa: N802
    stream = Stream()
    return _done("cuStreamCreate", ctypes.byref(stream), 1), stream


def cudaStreamSynchronize(stream: Stream) -> tuple[cudaError_t]:  # noqa: N802
    return (_done("cuStreamSynchronize", stream),)


def cudaStreamDestroy(_stream: Stream) -> tuple[cudaError_t]:  # noqa: N802
    return (cudaError_t.cudaSuccess,)


def cudaMemcpyAsync(to: object, source: object, nbytes: int, _kind: cudaMemcpyKind, stream: Stream):  # noqa: N802
    """Between device memory, which is an address that cudaMalloc gave, and host memory."""
    name = "cuMemcpyHtoDAsync_v2" if isinstance(to, int) and to in _allocated else "cuMemcpyDtoHAsync_v2"
    first, second = (ctypes.c_uint64(at) if isinstance(at, int) else at for at in (to, source))  # else a buffer
    return (_done(name, first, second, ctypes.c_size_t(nbytes), stream),)
