"""The NVIDIA driver, as far as a worker needs it: copies of what a model left on a GPU, and clients' memory there.

Loaded when such a tensor first comes, in the instance's own process, whose CUDA context is the model's.
"""

import contextlib
import ctypes
import os

from tisfast_worker.errors import TritonModelException

_LIBRARY = "libcuda.so.1"
_LAZY_PEER_ACCESS = 1
_NON_BLOCKING = 1
_FOR_ALL_CONTEXTS = 1  # CU_MEMHOSTREGISTER_PORTABLE


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
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, ctypes.c_size_t, _POINTER),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, ctypes.c_size_t, _POINTER),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, ctypes.c_size_t, _POINTER),
    "cuMemHostRegister_v2": (_POINTER, ctypes.c_size_t, ctypes.c_uint),
    "cuMemHostUnregister": (_POINTER,),
    "cuIpcOpenMemHandle_v2": (ctypes.POINTER(_ADDRESS), _Handle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_ADDRESS,),
    "cuDeviceGetUuid_v2": (_POINTER, ctypes.c_int),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
}


# After these no call of the process succeeds any more (the driver API's documentation of CUresult).
FATAL = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})
_OUT_OF_MEMORY = 2
# What was registered in the context is registered no more: the driver ends, the context is destroyed, or it was reset.
_ENDED = frozenset({4, 201, 709, 713})


class CudaError(Exception):
    """A call of the driver's failed, or there is no driver; the text says what and why.

    is_fatal: this process can use its GPU no more; is_full: the GPU has no room; has_ended: the context has let go of
    what it had; was_queued: it is of what the model had queued before.
    """

    def __init__(self, text, code=0):
        """`code`: the driver's, 0 without a call."""
        Exception.__init__(self, text)
        self.is_fatal, self.is_full = code in FATAL, code == _OUT_OF_MEMORY
        self.has_ended = self.is_fatal or code in _ENDED
        self.was_queued = False


class GpuFailed(TritonModelException):
    """What was to be done on the GPU failed; the text says what it was, and the driver's reason."""


class DeviceLost(GpuFailed):
    """The process can use its GPU no more: its requests fail, and it must be started again.

    is_told: the instance ends with these words, so that nothing else logs them.
    """

    is_told = False


def copy_to_host(copies, device, what):
    """Copy from device memory: (address on the host, address, bytes) of each.  They are done when this returns.

    Waits first for all that was queued in the device's context.  `what()`: names them in an error.  Raises GpuFailed.
    """
    copies = [each for each in copies if each[2]]
    if not copies:
        return
    try:
        ours = stream(device)
        with _Context(device) as call:
            _settle(call)
            try:
                for to, address, nbytes in copies:
                    call("cuMemcpyDtoHAsync_v2", to, address, nbytes, ours)
            finally:  # also what was queued before a refusal: the memory may become another answer's
                call("cuStreamSynchronize", ours)
    except CudaError as error:
        nbytes = sum(each[2] for each in copies)
        text = f"copying {nbytes} bytes of {what()} from GPU {device} to the host failed: {error}"
        raise failure(text, error) from None


def wait(device):
    """For all that was queued in the device's context.  Raises GpuFailed for what failed of it."""
    try:
        with _Context(device) as call:
            _settle(call)
    except CudaError as error:
        raise failure(f"the work that the model left on GPU {device} failed: {error}", error) from None


def join(to, parts):
    """Copy DeviceTensors and arrays to device memory, one behind the other; done when this returns.

    Raises GpuFailed.
    """
    import numpy  # noqa: PLC0415 - there where arrays are

    held = [numpy.ascontiguousarray(part) if isinstance(part, numpy.ndarray) else part for part in parts]
    try:
        with _Context(0) as call:
            try:
                for part in held:
                    if isinstance(part, numpy.ndarray):
                        nbytes = part.nbytes
                        call("cuMemcpyHtoDAsync_v2", to, part.ctypes.data, nbytes, None)
                    else:
                        nbytes = part.nbytes()
                        call("cuMemcpyDtoDAsync_v2", to, part.address(), nbytes, None)
                    to += nbytes
            finally:  # also what was queued before a refusal: both memories may become other tensors'
                call("cuCtxSynchronize")
    except CudaError as error:
        raise failure(f"joining the inputs of a batch on the GPU failed: {error}", error) from None


def uuid():
    """Of the GPU, or the part of one, that this instance sees.  Raises CudaError."""
    found, device = (ctypes.c_ubyte * 16)(), ctypes.c_int()
    with _Context(0) as call:
        call("cuDeviceGet", device, 0)
        call("cuDeviceGetUuid_v2", ctypes.addressof(found), device.value)
    return bytes(found)


def is_in_use():
    """Whether this process has a context on the GPU: it is looked at, and nothing is loaded or begun for it."""
    number, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    try:
        library = ctypes.CDLL(_LIBRARY, os.RTLD_NOLOAD)
        return (
            library.cuDeviceGet(ctypes.byref(number), 0) == 0
            and library.cuDevicePrimaryCtxGetState(number, ctypes.byref(flags), ctypes.byref(is_active)) == 0
            and is_active.value != 0
        )
    except (OSError, AttributeError):  # not loaded, or older than CUDA 7
        return False


def pin(address, nbytes):
    """Have the GPU copy from and to this host memory by itself.  Its pages stay in memory.  Raises CudaError."""
    stream(0)  # the registration goes with the context
    with _Context(0) as call:
        call("cuMemHostRegister_v2", address, nbytes, _FOR_ALL_CONTEXTS)


def unpin(addresses):
    """Undo `pin`, after what is queued: {address: the driver's reason} of those that stay pinned.

    A context that has failed, or was reset, has let go of all.
    """
    try:
        with _Context(0) as call:
            call("cuCtxSynchronize")
    except CudaError as error:
        if not error.has_ended:  # the GPU may still copy there
            return dict.fromkeys(addresses, str(error))
    left = {}
    for address in addresses:
        try:
            with _Context(0) as call:
                call("cuMemHostUnregister", address)
        except CudaError as error:
            if not error.has_ended:
                left[address] = str(error)
    return left


_QUEUED = ". This comes of what the model had queued on the GPU: look for the error in its own kernels"
_OTHER = ". Look for the error in the model's own kernels"
_ELSE = ". Else look for the error in the model's own kernels"
_CLIENTS = (
    "; or a client has freed memory that this instance has open: it must keep it allocated until it has unregistered it"
)
_NO_ROOM = ". The GPU has no room for what the driver needs: free memory there, and try again"
_clients = set()  # addresses of clients' memory that is open here


def _settle(call):
    """All that the model has queued is done.  Raises CudaError of what failed of it."""
    try:
        call("cuCtxSynchronize")
    except CudaError as error:
        error.was_queued = True
        raise


def failure(text, error, remedy=""):
    """The GpuFailed of a CudaError that the text tells.

    `remedy`: of a copy of ours.  A GPU that is lost is so by whoever used it: the likeliest comes first.
    """
    if error.is_full:
        return GpuFailed(text + _NO_ROOM)
    if not error.is_fatal:
        return GpuFailed(text if error.was_queued else text + remedy)
    if remedy and not error.was_queued:
        return DeviceLost(text + remedy + _ELSE)
    return DeviceLost(text + (_QUEUED if error.was_queued else _OTHER) + (_CLIENTS if _clients else ""))


_streams = {}  # by the device's number: a stream of our own


def stream(device):
    """Our stream of a device, made once; its context is kept for good.  Raises CudaError."""
    made = _streams.get(device)
    if made is None:
        made, number, context = _POINTER(), ctypes.c_int(), _POINTER()
        with _Context(device) as call:
            call("cuStreamCreate", made, _NON_BLOCKING)
            call("cuDeviceGet", number, device)
            call("cuDevicePrimaryCtxRetain", context, number.value)
        made = _streams.setdefault(device, made)  # two threads may have made one, which costs nothing
    return made


def copy(to, source, nbytes, name, way):  # noqa: PLR0917 - what is copied, and what it is
    """From device memory to device memory of the one GPU that this instance sees: what the model queued is done before,
    the copy when this returns.

    name: of the tensor; way(): for an error, from where into what it is copied, and the remedy.  Raises GpuFailed.
    """
    if not nbytes:
        return
    try:
        ours = stream(0)
        with _Context(0) as call:
            _settle(call)
            if to != source:
                call("cuMemcpyDtoDAsync_v2", to, source, nbytes, ours)
                call("cuStreamSynchronize", ours)
    except CudaError as error:
        where, remedy = way()
        raise failure(f"copying {nbytes} bytes of tensor '{name}' {where} failed: {error}", error, remedy) from None


class OpenedMemory:
    """Memory of another process on the one GPU that this instance sees, until it is closed.

    Who opens it closes it, as somebody waits for what the driver says to that: no finaliser does.  It retains the
    device's context: with the last reference to that the driver would take all addresses back.
    """

    __slots__ = ("_device", "address")

    def __init__(self, handle, of_client=False):
        """`handle`: a cudaIpcMemHandle_t, 64 bytes; `of_client`: its owner may free it.  Raises CudaError."""
        self.address = 0
        pointer = _ADDRESS()
        device, context = ctypes.c_int(), _POINTER()
        with _Context(0) as call:
            call("cuDeviceGet", device, 0)
            call("cuDevicePrimaryCtxRetain", context, device.value)
            try:  # last: what is open is closed only with this object
                call("cuIpcOpenMemHandle_v2", pointer, _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
            except CudaError:
                call("cuDevicePrimaryCtxRelease_v2", device.value)
                raise
        self.address, self._device = pointer.value, device.value
        if of_client:
            _clients.add(self.address)

    def close(self):
        """Now, whoever refers to it: why the driver has not closed it, or "".  A context that has ended has closed it.

        Raises a CudaError that is fatal: it stays open until the process ends.
        """
        address, self.address = self.address, 0
        try:
            if address:
                with _Context(0) as call:
                    call("cuIpcCloseMemHandle", address)
                    call("cuDevicePrimaryCtxRelease_v2", self._device)
        except CudaError as error:
            if error.is_fatal:
                raise
            _clients.discard(address)
            return "" if error.has_ended else str(error)
        _clients.discard(address)
        return ""


class _Context:
    """A device's primary context, this thread's while it is entered: calls in it, each of which raises CudaError."""

    __slots__ = ("_context", "_device", "_number")

    def __init__(self, device):
        self._device = device

    def __enter__(self):
        number, self._context = ctypes.c_int(), _POINTER()
        _call("cuInit", 0)
        _call("cuDeviceGet", number, self._device)
        self._number = number.value
        _call("cuDevicePrimaryCtxRetain", self._context, self._number)
        try:
            _call("cuCtxPushCurrent_v2", self._context)
        except CudaError:
            _function("cuDevicePrimaryCtxRelease_v2")(self._number)
            raise
        return _call

    def __exit__(self, *_):
        _function("cuCtxPopCurrent_v2")(self._context)
        _function("cuDevicePrimaryCtxRelease_v2")(self._number)


_functions = {}  # of the driver, by their names: looked up once


def _function(name):
    function = _functions.get(name)
    if function is None:
        try:
            function = getattr(ctypes.CDLL(_LIBRARY), name)
        except OSError as error:
            raise CudaError(f"the NVIDIA driver cannot be loaded: {error}") from None
        except AttributeError:
            raise CudaError(f"the NVIDIA driver has no {name}") from None
        function.argtypes = _SIGNATURES[name]
        _functions[name] = function
    return function


def _call(name, *arguments):
    code = _function(name)(*arguments)
    if code:
        raise CudaError(f"{name}: {_reason(code)}", code)


def _reason(code):
    text = ctypes.c_char_p()
    with contextlib.suppress(CudaError):  # one that is older than CUDA 6
        _function("cuGetErrorString")(code, text)
    return text.value.decode() if text.value else f"error {code}"
