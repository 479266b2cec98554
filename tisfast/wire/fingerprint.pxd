# What tells two requests of one model version apart, for the response cache.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.record cimport InferInput

# Feed `update` (of a hash object) all of a request that its model can see, but its id: each input's index, type, shape
# and bytes, the requested outputs, timeout, sequence id and flags, parameters.  No two different requests feed the same.
# False: an input lies in a client's memory, which may become another one before the model sees it.
cdef bint feed(InferInput request, object update) except -1
# Bytes of its inputs.
cdef uint64_t fed_bytes(InferInput request) noexcept
