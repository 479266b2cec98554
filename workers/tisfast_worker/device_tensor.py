"""Tensors in GPU memory that a model returns through DLPack: kept where they lie, and copied to the
host when their bytes are to travel.  Everything that is not asked for a copy stays on the GPU.
"""

import ctypes
import threading
import weakref

from tisfast_worker import cuda, dlpack, dtypes
from tisfast_worker.errors import TritonModelException
from tisfast_worker.tensor import Tensor, count

_UINT8 = 2
DEVICE = (2, 0)
"""DLPack's CUDA, and the number of the only GPU that is visible."""
_ORDERED = (None, 1, -1)  # DLPack's numbers: the legacy default stream, and no order wanted


class ClientMemory:
    """A place in GPU memory that another process has exported.

    `lease`: of the request whose input it is, or the ReplyMemory of the answer whose output it is; it is kept.
    """

    __slots__ = ("__weakref__", "address", "lease", "nbytes", "place", "shape", "share")

    def __init__(self, share, place, offset, nbytes, shape, lease):  # noqa: PLR0913, PLR0917 - its parts
        """`share`: a foreign_memory.Share, which is kept open; `place`: as the server knows it, `offset`: of the share.

        Raises CudaError.
        """
        self.share, self.address, self.place, self.nbytes = share, share.memory().address + offset, place, nbytes
        self.shape, self.lease = tuple(shape), lease


class KnownMemory:
    """The ClientMemory objects that somebody refers to, so that a tensor is found to lie in one, whoever made it."""

    def __init__(self):
        """From any thread."""
        self._known = weakref.WeakSet()
        self._lock = threading.RLock()  # a finaliser of the model's may come back here

    def add(self, memory):
        """Know this one; returns it."""
        with self._lock:
            self._known.add(memory)
        return memory

    def around(self, tensor):
        """Those that a DeviceTensor lies in."""
        address, nbytes = tensor.address(), tensor.nbytes()
        with self._lock:
            known = list(self._known)
        return [each for each in known if nbytes and 0 <= address - each.address <= each.nbytes - nbytes]


class DeviceTensor(Tensor):
    """A tensor of another library in the memory of a GPU; it keeps that library's tensor alive."""

    __slots__ = ("_device", "_memory")

    def __init__(self, name, code, memory, device):
        """`memory`: the Adopted tensor; `device`: (DLPack's device type, number)."""
        self._name, self._code, self._memory, self._device = name, code, memory, device
        self._array = self._raw = None

    def _content(self):
        """See Tensor."""
        return self._bytes().raw if self._code == dtypes.BF16 else self.on_host()

    def on_host(self):
        """A copy on the host as an array, of BF16 of its bits."""
        import numpy  # noqa: PLC0415

        kind = numpy.dtype(dtypes.TYPES[self._code][3] or dtypes.BF16_BITS)
        return numpy.frombuffer(self._bytes(), kind, count(self._memory.shape)).reshape(self._memory.shape)

    def _bytes(self):
        """A copy on the host, of what is there now: a model may write to it again, and send it again."""
        nbytes = self.nbytes()
        host = ctypes.create_string_buffer(max(nbytes, 1))
        cuda.copy_to_host([(ctypes.addressof(host), self.address(), nbytes)], self._device[1], lambda: _names([self]))
        return host

    def tobytes(self):
        """A copy of its bytes."""
        return self._bytes()[: self.nbytes()]

    def nbytes(self):
        """Of its data."""
        return count(self._memory.shape) * dtypes.TYPES[self._code][2]

    def address(self):
        """On its GPU."""
        return self._memory.address

    def passed(self, request):
        """(place, bytes) when it lies in an input of `request`, whatever made it; what was queued is done then."""
        address, nbytes = self.address(), self.nbytes()
        for memory in (request.devices or {}).values():
            offset = address - memory.address
            if 0 <= offset <= memory.nbytes - nbytes and nbytes:
                cuda.wait(self._device[1])
                return memory.place + offset, nbytes
        return None

    def as_numpy(self):
        """Refused: it lies in GPU memory."""
        raise TritonModelException(
            f"Tensor is stored in GPU and cannot be converted to NumPy. Use to_dlpack() of tensor '{self._name}'."
        )

    def shape(self):
        """Dimensions, a list of int."""
        return list(self._memory.shape)

    def is_cpu(self):
        """It lies in GPU memory."""
        return False

    def to_dlpack(self):
        """A DLPack capsule over the same GPU memory, for any stream: what was queued is done.

        Raises TritonModelException.
        """
        self._settle()
        return self._capsule()

    def _settle(self):
        cuda.wait(self._device[1])

    def _capsule(self):
        return dlpack.capsule_of(self._memory, self._memory.address, self._memory.shape, self._code, self._device)

    def bytes_to_dlpack(self):
        """A DLPack capsule over the same GPU memory as bytes: all frameworks take these, wherever they begin."""
        return dlpack.capsule_of(self._memory, self.address(), (self.nbytes(),), _UINT8, self._device)

    def __dlpack__(self, *, stream=None, **_wanted):
        """The DLPack protocol: safe to be read in `stream`.  Adopting ordered the legacy default stream behind its
        computation; other streams may not be, so that is waited for.
        """
        return self._capsule() if stream in _ORDERED else self.to_dlpack()

    def __dlpack_device__(self):
        """(device type, device id)."""
        return self._device


def copy_to_host(wanted):
    """Copy whole tensors: (address on the host, DeviceTensor) of each.  Raises GpuFailed."""
    for device in {tensor._device[1] for _, tensor in wanted}:
        those = [(to, tensor) for to, tensor in wanted if tensor._device[1] == device]
        copies = [(to, tensor.address(), tensor.nbytes()) for to, tensor in those]
        cuda.copy_to_host(copies, device, lambda those=those: _names([tensor for _, tensor in those]))


def _names(tensors):
    """For errors."""
    names = ", ".join(f"'{tensor._name}'" for tensor in tensors)
    return f"tensors {names}" if len(tensors) > 1 else f"tensor {names}"


class DeviceInput(DeviceTensor):
    """A tensor in other processes' memory, on the one GPU that this instance sees: an input's, or an answer's."""

    __slots__ = ()

    def __init__(self, name, code, memory):
        """`memory`: a ClientMemory."""
        DeviceTensor.__init__(self, name, code, memory, DEVICE)

    def _settle(self):
        """It was there before this process was told of it."""
