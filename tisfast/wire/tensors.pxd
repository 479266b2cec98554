# Tensors that lie somewhere, and pass from model to model without a copy.  Layer 2 (wire).
from libc.stdint cimport uint32_t, uint64_t
from tisfast.native.memory cimport MemoryFile
from tisfast.wire.signature cimport ModelSignature

cdef enum:
    FOREIGN = 16                    # request record's flag: places carry share ids in bits 48 to 63 (workers/WIRE.md)
    OUTPUT_PLACES = 64              # the same: it says where the worker writes outputs that lie in GPU memory
    STAYS = 128                     # the same: outputs may stay on the GPU, in memory that the worker was lent
    LENT = 0xFFFF                   # the share id of that memory in an answer; no other memory has it
    NO_INPUT = 0xFFFFFFFF           # ForeignInput.position of such a place
    SHARE_SHIFT = 48

cdef class Tensor:
    """A named tensor and the memory that it lies in.  Immutable; the memory stays while this object does."""
    cdef readonly str name
    cdef readonly int dtype         # code of types.DataType
    cdef readonly tuple shape       # of int, with the batch dimension where the model has one
    cdef readonly MemoryFile file   # an arena, or a client's shared memory (`file.guarded`: it may vanish any time)
    cdef readonly uint64_t offset   # in the file
    cdef readonly uint64_t nbytes
    cdef readonly object keep       # what holds the memory: Answer, Block, InferInput, Region
    # Copies bytes [start, start + nbytes) of the tensor, safely for every kind of memory.  Raises TisError.
    cdef int read(self, uint64_t start, void *to, uint64_t nbytes) except -1
    # Its address in this process, or NULL where it must not be touched but by `read`.
    cdef unsigned char *address(self) noexcept
    # The same bytes under another name, shape or both (None: as they are).
    cdef Tensor renamed(self, str name, tuple shape)

cdef Tensor new_tensor(str name, int dtype, tuple shape, MemoryFile file, uint64_t offset, uint64_t nbytes, object keep)

# Whether a worker of `model` is better off with a place than with a copy: large, where 48 bits say where, not of a
# client who may write it while somebody relies on what it was, and of GPU memory only what the worker takes.
cdef bint by_reference(ModelSignature model, int dtype, MemoryFile file, uint64_t offset, uint64_t nbytes) noexcept
cdef bint referred(ModelSignature model, Tensor tensor) noexcept

cdef class ForeignInput:
    """One input of a request that lies outside its model's input arena, or a place there for one of its outputs."""
    cdef readonly Tensor tensor
    cdef uint32_t position          # among the inputs of the request's record, or NO_INPUT
    cdef uint32_t place_at          # where in the record its place stands
    cdef uint64_t place             # as the worker that has the request knows it: its share id and the offset

cdef ForeignInput new_foreign(Tensor tensor, uint32_t position)
