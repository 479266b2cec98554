"""The functions of the NVIDIA driver's library that the server calls.  Layer 1 (native).

GIL: ctypes releases it around every call.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from tisfast.native.cuda_faces import Unclosed, uuid_text
from tisfast.types import HANDLE_BYTES

UUID_BYTES: Final = 16
LIBRARY: Final = "libcuda.so.1"


class CudaMissing(Exception):
    """This machine, or this server, has no GPU to offer; the text says why."""


class Handle(ctypes.Structure):
    """A cudaIpcMemHandle_t, by which another process opens memory."""

    _fields_ = (("reserved", ctypes.c_ubyte * HANDLE_BYTES),)


POINTER = ctypes.c_uint64
_SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_int),
    "cuDevicePrimaryCtxReset_v2": (ctypes.c_int,),
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxSetCurrent": (ctypes.c_void_p,),
    "cuStreamCreate": (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint),
    "cuStreamSynchronize": (ctypes.c_void_p,),
    "cuIpcOpenMemHandle_v2": (ctypes.POINTER(POINTER), Handle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (POINTER,),
    "cuMemAlloc_v2": (ctypes.POINTER(POINTER), ctypes.c_size_t),
    "cuMemFree_v2": (POINTER,),
    "cuIpcGetMemHandle": (ctypes.POINTER(Handle), POINTER),
    "cuMemGetAddressRange_v2": (ctypes.POINTER(POINTER), ctypes.POINTER(ctypes.c_size_t), POINTER),
    "cuMemcpyDtoHAsync_v2": (ctypes.c_void_p, POINTER, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyHtoDAsync_v2": (POINTER, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemcpyDtoDAsync_v2": (POINTER, POINTER, ctypes.c_size_t, ctypes.c_void_p),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}

_OUT_OF_MEMORY: Final = 2
# After these no call in the context succeeds any more (the driver API's documentation of CUresult).
_FATAL: Final = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})


class Failed(Exception):
    """A call of the driver's failed; the text names call and reason.

    is_full: the GPU has no room; is_fatal: its context is lost; unclosed: see cuda.Unopened.
    """

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.is_full, self.is_fatal = code == _OUT_OF_MEMORY, code in _FATAL
        self.unclosed: Unclosed | None = None


class Driver:
    """The library's functions; each raises Failed."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
            for name, arguments in _SIGNATURES.items():
                function = getattr(self._library, name)
                function.argtypes, function.restype = arguments, ctypes.c_int
        except (OSError, AttributeError) as error:
            raise CudaMissing(f"the NVIDIA driver's library cannot be used: {error}") from error

    def call(self, name: str, *arguments: Any) -> None:
        """One of _SIGNATURES.  Raises Failed."""
        code = getattr(self._library, name)(*arguments)
        if code == 0:
            return
        text = ctypes.c_char_p()
        known = self._library.cuGetErrorString(code, ctypes.byref(text)) == 0 and text.value
        raise Failed(f"{name}: {text.value.decode() if known and text.value else f'error {code}'}", code)

    def device(self, number: int) -> ctypes.c_int:
        """What the driver calls the GPU of this number.  Raises Failed."""
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        return device

    def uuid(self, device: ctypes.c_int) -> bytes:
        """Of a GPU, or of the MIG part of one that this process sees; b"" from a driver that tells none."""
        return self._uuid(device, "cuDeviceGetUuid_v2", "cuDeviceGetUuid")

    def gpu_uuid(self, device: ctypes.c_int) -> str:
        """Of a GPU, as `nvidia-smi -i` takes it, also where this process sees a MIG part of it; "" as above."""
        raw = self._uuid(device, "cuDeviceGetUuid")  # of a part, the newer call tells the part's own
        return uuid_text(raw) if raw else ""

    def _uuid(self, device: ctypes.c_int, *calls: str) -> bytes:
        """calls: the first one that the driver has and that succeeds."""
        raw = (ctypes.c_ubyte * UUID_BYTES)()
        for name in calls:
            function = getattr(self._library, name, None)
            if function is not None and function(ctypes.byref(raw), device) == 0:
                return bytes(raw)
        return b""
