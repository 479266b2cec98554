"""pb_utils.Tensor: what models read and return, with or without a server around them."""

import ctypes
import importlib
import struct
import sys

from tisfast_worker import arguments, dlpack, dtypes, limits
from tisfast_worker.errors import TritonModelException, not_copied

_codes = {}  # {id of a numpy dtype: (it, so that no other gets its id; its type code)} that were found to be fine
_array_types = ()  # numpy's, when there was one
_NO_NAME = "Tensor name cannot be an empty string."
_NO_BF16 = "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead."


class Tensor:
    """A named tensor over a numpy array, which is kept, not copied."""

    __slots__ = ("__weakref__", "_array", "_code", "_name", "_raw")

    def __init__(self, name, array):
        """Wrap `array`.  Raises TypeError for what is not a numpy array, TritonModelException for its type or name."""
        try:
            known = _codes.get(id(array.dtype))  # a dtype's hash takes four times as long
        except AttributeError:
            known = None
        if name.__class__ is not str:
            name = arguments.text("Tensor", "name", name)
        if known is None or not isinstance(array, _array_types) or not name:
            self._code = _checked(name, array)
        else:
            self._code = known[1]
        self._name = name
        self._array = array
        self._raw = None  # (memory exporter, address, shape) when there is no array: BF16

    def name(self):
        """The tensor's name."""
        return self._name

    def as_numpy(self):
        """The array itself: writable, without a copy; BYTES as an object array of bytes."""
        if self._array is None:
            raise TritonModelException(_NO_BF16)
        return self._array

    def bits(self):
        """BF16 as an array of 16-bit numbers: a copy, but of what lies in an arena."""
        if self._array is not None:
            return self._array
        import numpy  # noqa: PLC0415

        return numpy.frombuffer(bytearray(self._content()), dtypes.BF16_BITS).reshape(self._raw[2])

    def shape(self):
        """Dimensions, a list of int."""
        return list(self._array.shape if self._array is not None else self._raw[2])

    def triton_dtype(self):
        """The number of the element type in ModelConfig's DataType (FP32 is 11)."""
        return self._code

    def __reduce__(self):
        """Refused, as Triton refuses it: it belongs to this process."""
        raise not_copied(self)

    def _content(self):
        """The data of a tensor without an array, for an answer: an array, or a copy of the bytes (BF16)."""
        return ctypes.string_at(self._raw[1], 2 * count(self._raw[2]))

    def is_cpu(self):
        """Whether the bytes lie in host memory: all inputs do."""
        return True

    def to_dlpack(self):
        """A DLPack capsule over the same memory.  Raises TritonModelException for BYTES."""
        return dlpack.capsule(self)

    def __dlpack__(self, *, stream=None, **_wanted):
        """The DLPack protocol; `stream` has no meaning on the host."""
        return dlpack.capsule(self)

    def __dlpack_device__(self):
        """(device type, device id): (1, 0), the host."""
        return (dlpack.CPU, 0)

    @staticmethod
    def from_dlpack(name, tensor):
        """A Tensor over the memory of a DLPack capsule or of an object with `__dlpack__` and `__dlpack_device__`."""
        name = arguments.text("Tensor.from_dlpack()", "name", name)
        if not name:
            raise TritonModelException(_NO_NAME)
        code, array, raw, device = dlpack.adopt(tensor)
        if device is not None:
            from tisfast_worker.device_tensor import DeviceTensor  # noqa: PLC0415 - models without a GPU never need it

            return DeviceTensor(name, code, raw, device)
        made = Tensor.__new__(Tensor)
        made._name, made._code, made._array, made._raw = name, code, array, raw
        return made


class InputLayout:
    """The layout of one input of a request signature; shared by all its tensors."""

    __slots__ = ("array", "code", "dtype", "name", "nbytes", "shape")

    def __init__(self, name, code, shape):
        """`shape` as the model sees it.  nbytes is None for BYTES."""
        self.name, self.code, self.shape = name, code, shape
        self.nbytes = None if code == dtypes.BYTES else count(shape) * dtypes.TYPES[code][2]
        self.array = self.dtype = None

    def bind(self):
        """Import numpy, which nothing before the first as_numpy() needs."""
        import numpy  # noqa: PLC0415

        try:
            self.array = importlib.import_module("tisfast_worker.arrays").over
        except ImportError:  # compiled for another Python, or a numpy that it does not fit
            self.array = numpy.ndarray
        self.dtype = numpy.dtype(dtypes.TYPES[self.code][3] or dtypes.BF16_BITS)  # last: another thread may be looking


class ArenaTensor(Tensor):
    """An input that lies in the input arena.

    Owner of the memory: the lease of its request, which every array made here refers to, so that its reference count
    tells whether user code still holds anything.
    """

    __slots__ = ("_layout", "_lease", "_nbytes", "_offset")

    def __init__(self, layout, lease, offset, nbytes):
        """`offset` and `nbytes` in the arena; checked by the decoder."""
        self._layout, self._lease, self._offset, self._nbytes = layout, lease, offset, nbytes
        self._name, self._code = layout.name, layout.code
        self._array = None
        self._raw = None

    def as_numpy(self):
        """A writable view of the received bytes; BYTES as an object array of bytes.  The same array at every call."""
        array = self._array
        if array is not None:
            return array
        layout = self._layout
        if layout.code >= dtypes.BYTES:
            array = self._odd_array()
        else:
            if layout.dtype is None:
                layout.bind()
            array = layout.array(layout.shape, layout.dtype, self._lease, self._offset)
        self._array = array
        return array

    def bits(self):
        """See Tensor."""
        array = self._array
        if array is None:
            layout = self._layout
            if layout.dtype is None:
                layout.bind()
            array = self._array = layout.array(layout.shape, layout.dtype, self._lease, self._offset)
        return array

    def _odd_array(self):
        if self._code == dtypes.BF16:
            raise TritonModelException(_NO_BF16)
        import numpy  # noqa: PLC0415

        flat = numpy.empty(count(self._layout.shape), dtype=object)
        flat[:] = bytes_elements(self.raw_bytes(), len(flat), self._name)
        return flat.reshape(self._layout.shape)

    def raw_bytes(self):
        """A copy of the tensor's bytes as they came."""
        return struct.unpack_from(f"{self._nbytes}s", self._lease, self._offset)[0]

    def shape(self):
        """Dimensions, a list of int."""
        return list(self._layout.shape)


def zeros(layout):
    """A tensor of its own of nothing but zeros, or empty strings."""
    if layout.code == dtypes.BF16:
        return raw_tensor(layout.name, layout.code, bytes(layout.nbytes), layout.shape)
    import numpy  # noqa: PLC0415

    if layout.code == dtypes.BYTES:
        array = numpy.empty(layout.shape, object)
        array.fill(b"")
    else:
        array = numpy.zeros(layout.shape, dtypes.TYPES[layout.code][3])
    return Tensor(layout.name, array)


def raw_tensor(name, code, raw, shape):
    """A tensor over a copy of `raw`, of a type that numpy lacks."""
    memory = ctypes.create_string_buffer(raw, len(raw) or 1)
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._code, tensor._array = name, code, None
    tensor._raw = (memory, ctypes.addressof(memory), tuple(shape))
    return tensor


def count(shape):
    """Elements of a shape."""
    product = 1
    for dim in shape:
        product *= dim
    return product


def bytes_elements(raw, wanted, name):
    """The elements of a BYTES tensor in KServe's form.  Raises TritonModelException when they do not fill it."""
    items = []
    at = 0
    size_at = struct.Struct("<I").unpack_from
    total = len(raw)
    while at + 4 <= total:
        end = at + 4 + size_at(raw, at)[0]
        if end > total:
            break
        items.append(raw[at + 4 : end])
        at = end
    if at != total or len(items) != wanted:
        raise TritonModelException(
            f"BYTES tensor '{name}' of {total} bytes holds {len(items)} whole elements in {at} bytes; its shape says "
            f"{wanted}"
        )
    return items


def _checked(name, array):
    """The type code of a Tensor's arguments; raises what Tensor() does.  What is fine is known the next time."""
    global _array_types  # noqa: PLW0603 - numpy comes when the model imports it
    try:
        code = dtypes.CODE_BY_CHAR[array.dtype.char]
        fits = array.dtype.isnative and isinstance(array, sys.modules["numpy"].ndarray)
    except (AttributeError, KeyError):
        fits = False
    if not fits or not name:
        _refuse(name, array)
    if array.dtype.char != "S":  # as many types as lengths
        _array_types = (sys.modules["numpy"].ndarray,)
        if len(_codes) >= limits.PLANS_MAX:
            _codes.clear()
        _codes[id(array.dtype)] = (array.dtype, code)
    return code


def _refuse(name, array):
    """Say what is wrong with a Tensor's arguments."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(array, numpy.ndarray):
        raise TypeError(
            f"Tensor(name: str, array: numpy.ndarray): the array of {name!r} is not an array, but an object of type "
            f"{type(array).__name__}; wrap scalars and lists in numpy.array"
        )
    if not name:
        raise TritonModelException(_NO_NAME)
    raise TritonModelException(
        f"NumPy dtype is not supported. Tensor '{name}' has dtype {array.dtype.str}; Triton's types are bool, (u)int8 "
        "to 64, float16 to 64 "
        "in the machine's byte order, and object or bytes for BYTES"
    )
