# Answers as the response cache keeps them: one run of bytes that says what it is.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.native.memory cimport Block
from tisfast.wire.record cimport Answer, InferInput

# Bytes that `store` writes.
cdef uint64_t stored_bytes(Answer answer) noexcept
# `at` has stored_bytes() of room, 64-byte aligned.
cdef void store(Answer answer, unsigned char *at) noexcept
# The stored answer in `block`, as the answer to `request`, whose model gave it.  Its tensors stay in `block`, which it
# keeps.  Raises Internal for what is no answer of this model: the bytes may come from another machine.
cdef Answer restore(InferInput request, Block block)
