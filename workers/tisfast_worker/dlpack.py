"""DLPack both ways through ctypes: numpy offers none of it before 1.22, no BF16 and no bool at all in some versions.

Ownership (DLPack specification, "DLManagedTensor"): who consumes a capsule renames it and calls the deleter once done.
"""

import ctypes
import sys

from tisfast_worker import dtypes
from tisfast_worker.errors import TritonModelException

CPU = 1
_HOST_DEVICES = (1, 3)  # CPU, and CUDA's pinned host memory
_CUDA_DEVICES = (2, 13)  # its device memory, and managed memory
_DEFAULT_STREAM = 1  # the legacy one, which a copy to the host is ordered behind
_NAME, _USED = b"dltensor", b"used_dltensor"
# (kind, bits) of DLDataType: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool; one lane
_KIND = {1: (6, 8), 2: (1, 8), 3: (1, 16), 4: (1, 32), 5: (1, 64), 6: (0, 8), 7: (0, 16), 8: (0, 32), 9: (0, 64)}
_KIND.update({10: (2, 16), 11: (2, 32), 12: (2, 64), 14: (4, 16)})
_CODE = {kind: code for code, kind in _KIND.items()}
_NOT_SUPPORTED = (
    "Provided tensor is not supported. Tensor must be a DLPack capsule "
    "or have `__dlpack__` and `__dlpack_device__` attributes"
)


class _Managed(ctypes.Structure):
    """DLManagedTensor with its DLTensor spelt out."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("ndim", ctypes.c_int32),
    ("kind", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
    ("manager_ctx", ctypes.c_void_p),
    ("deleter", _Deleter),
]
_CapsuleEnd = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_python = ctypes.pythonapi


def _function(name, result, *arguments):
    """A function of the interpreter with a prototype of our own: pythonapi's attributes are shared with user code."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, _python))


_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_rename = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
# The same on a capsule that is being destroyed, which must not become a Python object again.
_dead_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_dead_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_incref = _function("Py_IncRef", None, ctypes.py_object)
_decref = _function("Py_DecRef", None, ctypes.c_void_p)


@_Deleter
def _delete(managed):
    """Drop the reference that the consumer held on the exporter's memory."""
    _decref(managed.contents.manager_ctx)


@_CapsuleEnd
def _end_unused(capsule):
    """A capsule that was not consumed dies with its tensor."""
    if _dead_is_valid(capsule, _NAME):
        _decref(_Managed.from_address(_dead_pointer(capsule, _NAME)).manager_ctx)


_END_UNUSED = ctypes.cast(_end_unused, ctypes.c_void_p).value


class _Export:
    """Everything a capsule points to; alive until the deleter drops it."""

    __slots__ = ("keep", "managed", "shape", "strides")


def capsule(tensor):
    """A new capsule over a Tensor's memory.  Raises TritonModelException for BYTES."""
    if tensor.triton_dtype() == dtypes.BYTES:
        raise TritonModelException("DLPack does not have support for string tensors.")
    keep, address = _memory(tensor)
    return capsule_of(keep, address, tensor.shape(), tensor.triton_dtype(), (CPU, 0))


def capsule_of(keep, address, shape, code, device):
    """Export any memory, which `keep` keeps."""
    export = _Export()
    export.keep = keep
    export.shape = (ctypes.c_int64 * len(shape))(*shape)
    export.strides = (ctypes.c_int64 * len(shape))(*_row_major(shape))
    kind, bits = _KIND[code]
    export.managed = _Managed(address, *device, len(shape), kind, bits, 1, export.shape, export.strides, 0)
    export.managed.manager_ctx = id(export)
    export.managed.deleter = _delete
    made = _new(ctypes.addressof(export.managed), _NAME, _END_UNUSED)
    _incref(export)
    return made


def _memory(tensor):
    """(what keeps the bytes alive, their address)."""
    if tensor._raw is not None:
        return tensor._raw[0], tensor._raw[1]
    if tensor.triton_dtype() == dtypes.BF16:
        return tensor._lease, ctypes.addressof(tensor._lease) + tensor._offset
    array = sys.modules["numpy"].ascontiguousarray(tensor.as_numpy()) if tensor.shape() else tensor.as_numpy()
    return array, array.__array_interface__["data"][0]


def adopt(tensor):
    """(type code, array, raw, device) of a capsule or a DLPack object; consumes the capsule.

    device: None in host memory; of a GPU (type, number), and `raw` is its memory.  Raises TritonModelException.
    """
    if type(tensor).__name__ != "PyCapsule":
        if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
            raise TritonModelException(_NOT_SUPPORTED)
        device_type = tensor.__dlpack_device__()[0]
        _check_device(device_type)
        tensor = tensor.__dlpack__(stream=_DEFAULT_STREAM) if device_type in _CUDA_DEVICES else tensor.__dlpack__()
    if not _is_valid(tensor, _NAME):
        raise TritonModelException("This DLPack capsule was consumed before: each may be used once.")
    managed = _Managed.from_address(_pointer(tensor, _NAME))
    shape = tuple(managed.shape[: managed.ndim])
    code = _check(managed, shape)
    _rename(tensor, _USED)
    memory = _Adopted(managed, (managed.data or 0) + managed.byte_offset, shape, dtypes.TYPES[code][3])
    if managed.device_type in _CUDA_DEVICES:
        return code, None, memory, (managed.device_type, managed.device_id)
    if code == dtypes.BF16:
        return code, None, (memory, memory.address, shape), None
    import numpy  # noqa: PLC0415

    return code, numpy.asarray(memory), None, None


def _check(managed, shape):
    """The tensor's type code, if we can read it."""
    _check_device(managed.device_type)
    code = _CODE.get((managed.kind, managed.bits)) if managed.lanes == 1 else None
    if code is None:
        raise TritonModelException(
            f"DLPack dtype is not supported: type code {managed.kind}, {managed.bits} bits, {managed.lanes} lanes"
        )
    if managed.strides and 0 not in shape:
        wanted = _row_major(shape)
        # A dimension of one may claim any stride.
        if any(managed.strides[i] != wanted[i] for i in range(len(shape)) if shape[i] != 1):
            raise TritonModelException(
                "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are "
                "supported."
            )
    return code


def _check_device(device_type):
    if device_type not in (*_HOST_DEVICES, *_CUDA_DEVICES):
        raise TritonModelException(
            f"DLPack tensor lies on device type {device_type}; only host memory and CUDA's can be returned: copy it to "
            "the host first"
        )


def _row_major(shape):
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= dim
    return strides[::-1]


class _Adopted:
    """Memory of another library, which numpy refers to through this object; with it goes the producer's tensor."""

    __slots__ = ("_managed", "_spare", "_typestr", "address", "shape")

    def __init__(self, managed, address, shape, typestr):
        """Takes over the producer's tensor."""
        self._managed = ctypes.addressof(managed)
        self._spare = None if address else ctypes.c_char()  # an empty tensor may have no address; numpy wants one
        self.address = address or ctypes.addressof(self._spare)
        self.shape, self._typestr = shape, typestr

    @property
    def __array_interface__(self):
        """numpy's array interface, version 3."""
        typestr = "|b1" if self._typestr == "?" else self._typestr
        return {"shape": self.shape, "typestr": typestr, "data": (self.address, False), "version": 3}

    def __del__(self):
        """The consumer's duty in DLPack; a producer without a deleter wants no call."""
        managed = _Managed.from_address(self._managed)
        if ctypes.cast(managed.deleter, ctypes.c_void_p).value:
            managed.deleter(ctypes.pointer(managed))
