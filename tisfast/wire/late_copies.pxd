# Bytes that threads bring where a request or an answer needs them.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint64_t
from tisfast.native.memory cimport Block, MemoryFile
from tisfast.native.region cimport Region
from tisfast.wire.tensors cimport Tensor

cdef class LateCopy:
    """Part of a tensor, to be copied into a block: of GPU memory, whose GPU may hang, or of a client's file, and long."""
    cdef Tensor tensor          # its name is that of the input or output; its file is None in a codec process
    cdef str region             # the client's region that it lies in, or None
    cdef uint64_t start         # in the tensor
    cdef uint64_t nbytes
    cdef Block block
    cdef uint64_t at            # in the block
    cdef int64_t elements       # of BYTES: so many strings must be there; -1: nothing is to be looked at
    cdef str who                # then: the start of texts about the request

cdef LateCopy late_copy(Tensor tensor, uint64_t start, uint64_t nbytes, Block block, uint64_t at)
# Of a client's region, which is not known here where a codec process reads the request.
cdef LateCopy region_copy(str name, Region region, uint64_t offset, uint64_t nbytes, Block block, uint64_t at)

# The work of each for its thread, in order: (lane or None, a function that returns (status, text) of an error or (), what it
# copies, for errors; "" where there is no lane).
cdef list late_steps(list copies, str model)

# The thread for copies of so many bytes of this memory; None: those for what is long.
cdef object lane_of(MemoryFile file, uint64_t nbytes)

# Counts and lengths inside `nbytes` bytes of BYTES input `name`.  Raises BadRequest.
cdef int walk(
    const unsigned char *at, uint64_t nbytes, uint64_t elements, str who, str name, str model) except -1
cdef int check_strings(str who, str name, str model, uint64_t got, uint64_t expected) except -1
