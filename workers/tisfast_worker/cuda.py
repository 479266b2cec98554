"""The NVIDIA driver, as far as a worker needs it: copies of what a model left on a GPU, and clients' memory there.

Loaded when such a tensor first comes, in the instance's own process, whose CUDA context is the model's.
"""

import ctypes

from tisfast_worker.errors import TritonModelException

_LIBRARY = "libcuda.so.1"
_LAZY_PEER_ACCESS = 1
_NON_BLOCKING = 1


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


_ADDRESS = ctypes.c_uint64
_POINTER = ctypes.c_void_p
_SIGNATURES = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_POINTER), ctypes.c_int),
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (ctypes.POINTER(_POINTER),),
    "cuCtxSynchronize": (),
    "cuStreamCreate": (ctypes.POINTER(_POINTER), ctypes.c_uint),
    "cuStreamSynchronize": (_POINTER,),
    "cuMemcpyDtoH_v2": (_POINTER, _ADDRESS, ctypes.c_size_t),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, ctypes.c_size_t, _POINTER),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, ctypes.c_size_t, _POINTER),
    "cuIpcOpenMemHandle_v2": (ctypes.POINTER(_ADDRESS), _Handle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_ADDRESS,),
    "cuDeviceGetUuid_v2": (_POINTER, ctypes.c_int),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}


# After these no call of the process succeeds any more (the driver API's documentation of CUresult).
_FATAL = frozenset({214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719})


class CudaError(Exception):
    """A call of the driver's failed, or there is no driver; the text says what and why.

    is_fatal: this process can use its GPU no more.
    """

    def __init__(self, text, code=0):
        """`code`: the driver's, 0 without a call."""
        Exception.__init__(self, text)
        self.is_fatal = code in _FATAL


class DeviceLost(TritonModelException):
    """The process can use its GPU no more: its requests fail, and it must be started again."""


def copy_to_host(to, address, nbytes, device):
    """Copy from device memory.  Waits for all that was queued in the device's context.  Raises TritonModelException."""
    if not nbytes:
        return
    try:
        with _Context(device) as call:
            call("cuCtxSynchronize")
            call("cuMemcpyDtoH_v2", to, address, nbytes)
    except CudaError as error:
        text = f"copying {nbytes} bytes of a tensor from GPU {device} to the host failed: {error}"
        raise _failure(text, error) from None


def wait(device):
    """For all that was queued in the device's context.  Raises TritonModelException for what failed of it."""
    try:
        with _Context(device) as call:
            call("cuCtxSynchronize")
    except CudaError as error:
        raise _failure(f"the work that the model left on GPU {device} failed: {error}", error) from None


def join(to, parts):
    """Copy DeviceTensors and arrays to device memory, one behind the other; done when this returns.

    Raises TritonModelException.
    """
    import numpy  # noqa: PLC0415 - there where arrays are

    held = [numpy.ascontiguousarray(part) if isinstance(part, numpy.ndarray) else part for part in parts]
    try:
        with _Context(0) as call:
            for part in held:
                if isinstance(part, numpy.ndarray):
                    nbytes = part.nbytes
                    call("cuMemcpyHtoDAsync_v2", to, part.ctypes.data, nbytes, None)
                else:
                    nbytes = part.nbytes()
                    call("cuMemcpyDtoDAsync_v2", to, part.address(), nbytes, None)
                to += nbytes
            call("cuCtxSynchronize")
    except CudaError as error:
        raise _failure(f"joining the inputs of a batch on the GPU failed: {error}", error) from None


def uuid():
    """Of the GPU, or the part of one, that this instance sees.  Raises CudaError."""
    found, device = (ctypes.c_ubyte * 16)(), ctypes.c_int()
    with _Context(0) as call:
        call("cuDeviceGet", device, 0)
        call("cuDeviceGetUuid_v2", ctypes.addressof(found), device.value)
    return bytes(found)


def _failure(text, error):
    return (DeviceLost if error.is_fatal else TritonModelException)(text)


class Gpu:
    """The one GPU that this instance sees, with a stream of our own.  It keeps the device's context for good."""

    __slots__ = ("_stream",)

    def __init__(self):
        """Raises CudaError."""
        self._stream = _POINTER()
        with _Context(0) as call:
            device, context = ctypes.c_int(), _POINTER()
            call("cuStreamCreate", self._stream, _NON_BLOCKING)
            call("cuDeviceGet", device, 0)
            call("cuDevicePrimaryCtxRetain", context, device.value)

    def copy(self, to, source, nbytes):
        """From device memory to device memory: what the model queued is done before, the copy when this returns.

        Raises TritonModelException.
        """
        if not nbytes:
            return
        try:
            with _Context(0) as call:
                call("cuCtxSynchronize")
                if to != source:
                    call("cuMemcpyDtoDAsync_v2", to, source, nbytes, self._stream)
                    call("cuStreamSynchronize", self._stream)
        except CudaError as error:
            text = f"copying {nbytes} bytes of an output on the GPU failed: {error}"
            raise _failure(text, error) from None


class OpenedMemory:
    """Memory of another process on the one GPU that this instance sees; closed when nothing refers to it any more.

    It retains the device's context: with the last reference to that the driver would take all addresses back.
    """

    __slots__ = ("_device", "address")

    def __init__(self, handle):
        """`handle`: a cudaIpcMemHandle_t, 64 bytes.  Raises CudaError."""
        self.address = 0
        pointer = _ADDRESS()
        device, context = ctypes.c_int(), _POINTER()
        with _Context(0) as call:
            call("cuIpcOpenMemHandle_v2", pointer, _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
            call("cuDeviceGet", device, 0)
            call("cuDevicePrimaryCtxRetain", context, device.value)
        self.address, self._device = pointer.value, device.value

    def __del__(self):
        """A driver that has failed meanwhile has closed it."""
        if self.address:
            try:
                with _Context(0) as call:
                    call("cuIpcCloseMemHandle", self.address)
                    call("cuDevicePrimaryCtxRelease_v2", self._device)
            except CudaError:
                pass


class _Context:
    """A device's primary context, this thread's while it is entered: calls in it, each of which raises CudaError."""

    __slots__ = ("_context", "_device", "_library", "_number")

    def __init__(self, device):
        self._device = device

    def __enter__(self):
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise CudaError(f"the NVIDIA driver cannot be loaded: {error}") from None
        number, self._context = ctypes.c_int(), _POINTER()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", number, self._device)
        self._number = number.value
        self.call("cuDevicePrimaryCtxRetain", self._context, self._number)
        try:
            self.call("cuCtxPushCurrent_v2", self._context)
        except CudaError:
            self._function("cuDevicePrimaryCtxRelease_v2")(self._number)
            raise
        return self.call

    def __exit__(self, *_):
        self._function("cuCtxPopCurrent_v2")(self._context)
        self._function("cuDevicePrimaryCtxRelease_v2")(self._number)

    def call(self, name, *arguments):
        try:
            code = self._function(name)(*arguments)
        except AttributeError:
            raise CudaError(f"the NVIDIA driver has no {name}") from None
        if code:
            raise CudaError(f"{name}: {self._reason(code)}", code)

    def _function(self, name):
        function = getattr(self._library, name)
        function.argtypes = _SIGNATURES[name]
        return function

    def _reason(self, code):
        text = ctypes.c_char_p()
        if hasattr(self._library, "cuGetErrorString"):
            self._function("cuGetErrorString")(code, text)
        return text.value.decode() if text.value else f"error {code}"
