"""See the package.  Each function gives (result, ...)."""

from __future__ import annotations

import ctypes
from enum import IntEnum

library = ctypes.CDLL("libcuda.so.1")


class CUresult(IntEnum):
    """What a call gives first."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_UNKNOWN = 999


def called(name: str, *arguments: object) -> CUresult:
    """A call of the driver's."""
    return CUresult.CUDA_ERROR_UNKNOWN if getattr(library, name)(*arguments) else CUresult.CUDA_SUCCESS


def cuGetErrorString(error: CUresult) -> tuple[CUresult, bytes]:  # noqa: N802 - cuda-python's names
    return CUresult.CUDA_SUCCESS, error.name.encode()


def cuDeviceGet(number: int) -> tuple[CUresult, int]:  # noqa: N802
    device = ctypes.c_int()
    return called("cuDeviceGet", ctypes.byref(device), number), device.value


def cuDevicePrimaryCtxGetState(device: int) -> tuple[CUresult, int, int]:  # noqa: N802
    flags, is_active = ctypes.c_uint(), ctypes.c_int()
    done = called("cuDevicePrimaryCtxGetState", device, ctypes.byref(flags), ctypes.byref(is_active))
    return done, flags.value, is_active.value
