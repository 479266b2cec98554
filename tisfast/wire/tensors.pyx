"""Tensors that lie somewhere, and pass from model to model without a copy; see tensors.pxd.  Layer 2 (wire)."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from tisfast.native.memory cimport Arena, Block, MemoryFile
from tisfast.native.region cimport SystemRegion
from tisfast.wire.signature cimport BYTES, ModelSignature

from tisfast import tuning
from tisfast.types import BY_CODE

cdef uint64_t REFERENCE_BYTES_MIN = tuning.REFERENCE_BYTES_MIN


@cython.freelist(64)
cdef class Tensor:
    """See tensors.pxd."""

    cdef int read(self, uint64_t start, void *to, uint64_t nbytes) except -1:
        if start > self.nbytes or nbytes > self.nbytes - start:
            raise IndexError(f"bytes {start} to {start + nbytes} of tensor '{self.name}', which has {self.nbytes}")
        return self.file.copy_out(self.offset + start, to, nbytes)

    cdef unsigned char *address(self) noexcept:
        return NULL if self.file.guarded else self.file.at(self.offset)

    cdef Tensor renamed(self, str name, tuple shape):
        return new_tensor(
            self.name if name is None else name, self.dtype, self.shape if shape is None else shape, self.file, self.offset,
            self.nbytes, self.keep)

    def renamed_as(self, str name) -> Tensor:
        """This tensor under another name."""
        return self.renamed(name, None)

    def start(self, uint64_t most) -> bytes:
        """A copy of at most so many bytes, from its start.  Raises TisError when its memory has gone."""
        cdef uint64_t nbytes = min(most, self.nbytes)
        found = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>nbytes)
        self.read(0, PyBytes_AS_STRING(found), nbytes)
        return found

    def bytes(self) -> bytes:
        """A copy of its bytes.  Raises TisError when its memory has gone."""
        return self.start(self.nbytes)

    def __repr__(self):
        kind = BY_CODE[self.dtype].wire if self.dtype in BY_CODE else self.dtype
        return f"Tensor({self.name!r}, {kind}, {list(self.shape)}, {self.nbytes} bytes at {self.offset})"


cdef Tensor new_tensor(str name, int dtype, tuple shape, MemoryFile file, uint64_t offset, uint64_t nbytes, object keep):
    cdef Tensor tensor = Tensor.__new__(Tensor)
    assert file.holds(offset, nbytes)
    tensor.name = name
    tensor.dtype = dtype
    tensor.shape = shape
    tensor.file = file
    tensor.offset = offset
    tensor.nbytes = nbytes
    tensor.keep = keep
    return tensor


cdef bint by_reference(ModelSignature model, int dtype, MemoryFile file, uint64_t offset, uint64_t nbytes) noexcept:
    if (offset + nbytes) >> SHARE_SHIFT:
        return False
    if file.device >= 0:  # of any size: a copy to the host costs more than a place
        return file.device == model.device_inputs and nbytes > 0 and dtype != BYTES and not model.copies_devices
    if nbytes < REFERENCE_BYTES_MIN:
        return False
    return not file.guarded or (dtype != BYTES and not model.copies_regions)


cdef bint referred(ModelSignature model, Tensor tensor) noexcept:
    return by_reference(model, tensor.dtype, tensor.file, tensor.offset, tensor.nbytes)


@cython.freelist(64)
cdef class ForeignInput:
    """See tensors.pxd."""


cdef ForeignInput new_foreign(Tensor tensor, uint32_t position):
    cdef ForeignInput foreign = ForeignInput.__new__(ForeignInput)
    foreign.tensor = tensor
    foreign.position = position
    return foreign


def in_block(str name, int dtype, tuple shape, Block block, uint64_t offset, uint64_t nbytes) -> Tensor:
    """A tensor in a block, `offset` from its start; for tests and tools."""
    return new_tensor(name, dtype, shape, block.arena, block.offset + offset, nbytes, block)


def in_region(str name, int dtype, tuple shape, SystemRegion region, uint64_t offset, uint64_t nbytes) -> Tensor:
    """A tensor in a region of system memory; for tests and tools.  Raises BadRequest when it is not within the region."""
    region.check(offset, nbytes)
    return new_tensor(name, dtype, shape, region.file, region.offset + offset, nbytes, region)
