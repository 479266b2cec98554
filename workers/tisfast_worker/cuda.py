"""The NVIDIA driver, as far as a worker needs it: to copy what a model left on a GPU to the host.

Loaded when a model first returns such a tensor, in the instance's own process, whose CUDA context is the model's.
"""

import ctypes

from tisfast_worker.errors import TritonModelException

_LIBRARY = "libcuda.so.1"


def copy_to_host(to, address, nbytes, device):
    """Copy from device memory.  Waits for all that was queued in the device's context.  Raises TritonModelException."""
    if not nbytes:
        return
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        text = f"a tensor lies on GPU {device}, and the NVIDIA driver cannot be loaded: {error}"
        raise TritonModelException(text) from None
    number, context = ctypes.c_int(), ctypes.c_void_p()

    def call(function, *arguments):
        code = getattr(library, function)(*arguments)
        if code:
            raise TritonModelException(
                f"copying {nbytes} bytes of a tensor from GPU {device} to the host failed: {function}: error {code}"
            )

    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(number), device)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    try:
        call("cuCtxPushCurrent_v2", context)
        try:
            call("cuCtxSynchronize")
            call("cuMemcpyDtoH_v2", ctypes.c_void_p(to), ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(context))
    finally:
        call("cuDevicePrimaryCtxRelease_v2", number)
