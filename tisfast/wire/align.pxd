# Where tensors begin in a block.  Layer 2 (wire).
from libc.stdint cimport uint64_t

# The next multiple of 64: tensors behind a record, and behind each other, begin there (workers/WIRE.md).
cdef inline uint64_t align64(uint64_t n) noexcept:
    return (n + 63) & ~<uint64_t>63
