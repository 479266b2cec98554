# One model version that can be asked for inferences.  Layer 3 (engine).
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.core cimport Clock, InferRequest, Link, Reply
from tisfast.engine.stats cimport Statistics
from tisfast.native.memory cimport Arena
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.signature cimport ModelSignature

cdef class ModelRuntime:
    cdef readonly ModelSignature signature
    cdef readonly Arena arena            # input arena: fronts take the blocks of request bodies here
    cdef readonly Statistics stats
    cdef readonly object config          # ModelConfig as a JSON-able dict, normalised (row 1.11)
    # Queue one request.  Never raises for the request's sake: refusals (queue full, not ready, stopping) go to
    # reply.failed.  Returns the request, for `cancel`.
    cdef InferRequest submit(self, InferInput input, Reply reply, int64_t arrival_ns)
    # The client left: a request still queued is dropped and counted CANCELED, a running one is only marked.
    cdef int cancel(self, InferRequest request) except -1
