"""One GPU through the NVIDIA driver's library: memory, one stream, graphs.  All of it belongs to one thread.

The context is the device's primary one, which TensorRT and CUDA's runtime take, too.
"""

import ctypes

from tisfast_worker.cuda import FATAL, DeviceLost
from tisfast_worker.failure import Refusal

_LIBRARY = "libcuda.so.1"
_NON_BLOCKING = 1
_CAPTURE_THREAD_LOCAL = 1
_CHUNK_BYTES = 256  # what the driver aligns allocations to; no tensor has less
_POINTER = ctypes.c_uint64
_SIZE = ctypes.c_size_t
_HANDLE = ctypes.c_void_p
_SIGNATURES = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_HANDLE), ctypes.c_int),
    "cuDevicePrimaryCtxRelease_v2": (ctypes.c_int,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuStreamCreate": (ctypes.POINTER(_HANDLE), ctypes.c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuMemAlloc_v2": (ctypes.POINTER(_POINTER), _SIZE),
    "cuMemFree_v2": (_POINTER,),
    "cuMemcpyHtoDAsync_v2": (_POINTER, _HANDLE, _SIZE, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (_HANDLE, _POINTER, _SIZE, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_POINTER, _POINTER, _SIZE, _HANDLE),
    "cuStreamBeginCapture_v2": (_HANDLE, ctypes.c_int),
    "cuStreamEndCapture": (_HANDLE, ctypes.POINTER(_HANDLE)),
    "cuGraphInstantiateWithFlags": (ctypes.POINTER(_HANDLE), _HANDLE, ctypes.c_ulonglong),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGraphDestroy": (_HANDLE,),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}


class DeviceError(Refusal):
    """A call of the driver's failed; the text names the call and the driver's reason."""


class DeviceLostError(DeviceError, DeviceLost):
    """The GPU's context has broken: the instance ends behind its batch, as others that lose their GPU."""


class Device:
    """The GPU that this worker sees, and a stream on it."""

    def __init__(self, model):
        """`model`: its name, for errors.  Raises DeviceError."""
        self._about = f"unable to load model '{model}'"
        self._library = self._opened()
        number, self._context, stream = ctypes.c_int(), _HANDLE(), _HANDLE()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(number), 0)
        self._number = number.value
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._number)
        self.call("cuCtxSetCurrent", self._context)
        self.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
        self.stream = stream.value

    def _opened(self):
        try:
            library = ctypes.CDLL(_LIBRARY)
            for name, arguments in _SIGNATURES.items():
                function = getattr(library, name)
                function.argtypes, function.restype = arguments, ctypes.c_int
        except (OSError, AttributeError) as error:
            raise DeviceError(
                f"{self._about}: TensorRT needs a GPU, and the NVIDIA driver's library cannot be used: {error}"
            ) from None
        return library

    def call(self, name, *arguments):
        """Raises DeviceError."""
        code = getattr(self._library, name)(*arguments)
        if code:
            kind = DeviceLostError if code in FATAL else DeviceError
            raise kind(f"{name} failed on the GPU: {self._error_name(code)}")

    def allocate(self, nbytes):
        """A DeviceMemory.  Raises DeviceError, which is known as a shortage where memory ran out."""
        pointer, nbytes = _POINTER(), max(nbytes, _CHUNK_BYTES)
        code = self._library.cuMemAlloc_v2(ctypes.byref(pointer), nbytes)
        if code:
            raise DeviceError(f"allocating {nbytes} bytes on the GPU failed: {self._error_name(code)}")
        return DeviceMemory(self, pointer.value, nbytes)

    def write(self, address, array):
        """Queue a copy of an array to an address on the GPU.  The array must stay until `wait` returns."""
        if array.nbytes:
            self.call("cuMemcpyHtoDAsync_v2", address, array.ctypes.data, array.nbytes, self.stream)

    def copy(self, address, source, nbytes):
        """Queue a copy from address to address on the GPU."""
        self.call("cuMemcpyDtoDAsync_v2", address, source, nbytes, self.stream)

    def read(self, array, memory):
        """Queue a copy of device memory into an array, which has it when `wait` returns."""
        if array.nbytes:
            self.call("cuMemcpyDtoHAsync_v2", array.ctypes.data, memory.address, array.nbytes, self.stream)

    def wait(self):
        """For all that was queued.  Raises DeviceError for what failed of it."""
        self.call("cuStreamSynchronize", self.stream)

    def captured(self, queue):
        """A graph of what `queue()` puts into the stream.  Raises DeviceError, or what `queue` raises."""
        graph, executable = _HANDLE(), _HANDLE()
        self.call("cuStreamBeginCapture_v2", self.stream, _CAPTURE_THREAD_LOCAL)
        queued = False
        try:
            queue()
            queued = True
        finally:
            code = self._library.cuStreamEndCapture(self.stream, ctypes.byref(graph))
            if code == 0 and not queued:
                self.call("cuGraphDestroy", graph)
        if code:
            raise DeviceError(f"cuStreamEndCapture failed on the GPU: {self._error_name(code)}")
        try:
            self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
        finally:
            self.call("cuGraphDestroy", graph)
        return executable.value

    def launch(self, graph):
        """Queue a graph."""
        self.call("cuGraphLaunch", graph, self.stream)

    def forget(self, graph):
        """Let go of a graph."""
        self.call("cuGraphExecDestroy", graph)

    def close(self):
        """Let go of stream and context."""
        self.call("cuStreamDestroy_v2", self.stream)
        self.call("cuDevicePrimaryCtxRelease_v2", self._number)

    def _error_name(self, code):
        text = ctypes.c_char_p()
        known = self._library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value
        return text.value.decode() if known else f"error {code}"


class DeviceMemory:
    """Some memory of the GPU."""

    __slots__ = ("_device", "address", "nbytes")

    def __init__(self, device, address, nbytes):
        """See Device.allocate."""
        self._device, self.address, self.nbytes = device, address, nbytes

    def free(self):
        """Once is enough; twice does nothing."""
        address, self.address = self.address, 0
        if address:
            self._device.call("cuMemFree_v2", address)
