"""Tensors in buffers of a client's; see buffer_tensor.pxd.  Layer 2 (wire)."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.wire.signature cimport BYTES, item_bytes

import struct

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.types import BY_WIRE

cdef dict DTYPE_BY_WIRE = {name: kind.code for name, kind in BY_WIRE.items()}
cdef Py_ssize_t RANK_MAX = limits.TENSOR_RANK_MAX
cdef uint64_t INT64_TOP = 0x7FFFFFFFFFFFFFFF
cdef object LENGTH = struct.Struct("<I")


cdef class BufferTensor:
    """A named tensor of a KServe datatype ("FP32", "BYTES", ...) and shape, whose bytes are in `data`.

    data: any object with a contiguous buffer, which is kept and must not change while the tensor is used; BYTES elements each
    behind its length (4 bytes, little-endian).  Raises BadRequest when type, shape and number of bytes do not belong together.
    """

    def __init__(self, str name, str datatype, shape, data):
        self._begin(name, datatype, shape)
        try:
            PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        except (BufferError, TypeError, ValueError) as error:
            raise BadRequest(f"tensor '{name}' must be in one contiguous buffer: {error}") from None
        self.viewed = True
        self.data = <const unsigned char *>self.view.buf
        self.nbytes = <uint64_t>self.view.len
        self._check_size()

    def __dealloc__(self):
        if self.viewed:
            PyBuffer_Release(&self.view)

    @staticmethod
    def in_region(str name, str datatype, shape, str region, uint64_t nbytes, uint64_t offset=0) -> BufferTensor:
        """A tensor in shared memory that the server knows by this name: nbytes at `offset` of the region."""
        cdef BufferTensor tensor = BufferTensor.__new__(BufferTensor)
        tensor._begin(name, datatype, shape)
        tensor.region, tensor.offset, tensor.nbytes = region, offset, nbytes
        return tensor

    def _begin(self, str name, str datatype, shape):
        self.name, self.datatype, self.shape = name, datatype, tuple(shape)
        if not name.isascii():
            check_text(name)
        self.dtype = DTYPE_BY_WIRE.get(datatype, 0)
        if self.dtype == 0:
            raise BadRequest(f"tensor '{name}' has datatype '{datatype}', known are {', '.join(BY_WIRE)}")
        self._check_shape()

    cdef int _check_shape(self) except -1:
        cdef uint64_t elements = 1
        if len(self.shape) > RANK_MAX:
            raise BadRequest(f"tensor '{self.name}' has {len(self.shape)} dimensions, {RANK_MAX} is the limit")
        for dim in self.shape:
            if not isinstance(dim, int) or dim < 0 or dim > INT64_TOP:
                raise BadRequest(f"tensor '{self.name}' has the shape {list(self.shape)}; dimensions are integers from 0 on")
        if 0 not in self.shape:
            for dim in self.shape:
                if elements > INT64_TOP // <uint64_t>dim:
                    raise BadRequest(f"tensor '{self.name}' of shape {list(self.shape)} has more than {INT64_TOP} elements")
                elements *= <uint64_t>dim
        else:
            elements = 0
        self.elements = elements
        return 0

    cdef int _check_size(self) except -1:
        cdef uint64_t size = item_bytes(self.dtype)
        cdef int64_t strings
        if size:
            if self.elements > INT64_TOP // size or self.nbytes != self.elements * size:
                raise BadRequest(
                    f"tensor '{self.name}' of {self.datatype} and shape {list(self.shape)} has {self.elements * int(size)} "
                    f"bytes, its buffer has {self.nbytes}")
            return 0
        strings = count_strings(self.data, self.nbytes)
        if strings < 0:
            raise BadRequest(
                f"tensor '{self.name}' of BYTES: its {self.nbytes} bytes are no sequence of elements, each behind its length")
        if <uint64_t>strings != self.elements:
            raise BadRequest(
                f"tensor '{self.name}' of BYTES and shape {list(self.shape)} has {self.elements} elements, its buffer has {strings}")
        return 0

    def buffer(self) -> memoryview:
        """Its bytes where they lie, read-only; they are kept by this tensor, which must be kept meanwhile.

        Raises BadRequest for a tensor in a region.
        """
        if self.region is not None:
            raise BadRequest(f"tensor '{self.name}' is in the region '{self.region}'")
        if self.nbytes == 0 or self.view.obj is None:  # the first kind cannot be cast
            return memoryview(b"")
        return memoryview(self.view.obj).cast("B").toreadonly()

    def memory(self) -> memoryview:
        """As `buffer`, but it can be written to where the memory behind it can."""
        if self.region is not None:
            raise BadRequest(f"tensor '{self.name}' is in the region '{self.region}'")
        if self.nbytes == 0 or self.view.obj is None:
            return memoryview(bytearray())
        return memoryview(self.view.obj).cast("B")

    def strings(self) -> list:
        """The elements of a tensor of BYTES, in order."""
        cdef const unsigned char *at = self.data
        cdef uint32_t length
        cdef uint64_t i
        if self.dtype != BYTES or self.region is not None:
            raise BadRequest(f"tensor '{self.name}' is no tensor of BYTES in a buffer")
        found = []
        for i in range(self.elements):
            memcpy(&length, at, 4)
            found.append(at[4:4 + length])
            at += 4 + length
        return found

    def __repr__(self):
        where = "" if self.region is None else f" in region {self.region!r} at {self.offset}"
        return f"BufferTensor({self.name!r}, {self.datatype}, {list(self.shape)}, {self.nbytes} bytes{where})"


cdef int check_text(str name) except -1:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest(f"{name!r:.100} is no name of a tensor: {error}") from None
    return 0


cdef int64_t count_strings(const unsigned char *data, uint64_t nbytes) noexcept:
    cdef uint64_t left = nbytes
    cdef uint32_t length
    cdef int64_t found = 0
    while left:
        if left < 4:
            return -1
        memcpy(&length, data, 4)
        if length > left - 4:
            return -1
        data += 4 + length
        left -= 4 + <uint64_t>length
        found += 1
    return found


def pack_strings(strings) -> bytes:
    """Elements of BYTES in KServe's form: each behind its length."""
    parts = []
    for text in strings:
        parts += (LENGTH.pack(len(text)), text)
    return b"".join(parts)
