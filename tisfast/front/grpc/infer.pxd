# ModelInfer: one request, one answer.  Layer 4 (front).
from libc.stdint cimport int64_t, uint8_t, uint64_t
from tisfast.engine.core cimport InferRequest
from tisfast.engine.served cimport Runtime
from tisfast.front.grpc.stream cimport GrpcStream
from tisfast.native.memory cimport Block
from tisfast.wire.record cimport InferInput

cdef class InferenceStream(GrpcStream):
    """A call whose messages are inferences: they go into their model's arena as they arrive."""
    cdef Runtime runtime            # of the message that is arriving, once its model is known
    cdef Block block                     # where it goes
    cdef uint64_t start                  # in the block
    cdef dict metadata                   # None unless the server's settings ask for it
    cdef bytes forwarded                 # metadata that become parameters, as JSON; or None
    cdef object unforwardable            # TisError: metadata that must not become parameters; or None
    cdef int64_t received_ns             # of the message's first byte, while requests may be traced
    cdef str peeked_id                   # of the message that is arriving, as far as it tells
    cdef object sample(self, InferInput input)   # a trace of the request, or None
    cdef int _peek(self, const uint8_t *data, uint64_t n, uint64_t total) except -1   # Peeked.  Raises TisError
    cdef int _take_block(self, uint64_t nbytes) except -1
    cdef InferInput read_request(self)   # the complete message.  Raises TisError

cdef class InferCall(InferenceStream):
    cdef InferInput input                # complete, until the client ends its side
    cdef InferRequest request            # while the engine has it
    cdef object trace                    # of a sampled request, or None
