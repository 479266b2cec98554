# ModelInfer: one request, one answer.  Layer 4 (front).
from libc.stdint cimport int64_t, uint8_t, uint64_t
from tisfast.engine.core cimport InferRequest
from tisfast.engine.interface cimport Runtime
from tisfast.front.grpc.message cimport OutMessage
from tisfast.front.grpc.stream cimport GrpcStream
from tisfast.native.memory cimport Block, Promise
from tisfast.wire.record cimport InferInput

cdef class InferenceStream(GrpcStream):
    """A call whose messages are inferences: they go into their model's arena as they arrive."""
    cdef Runtime runtime            # of the message that is arriving, once its model is known
    cdef Block block                     # where it goes
    cdef Promise promise                 # of its rest, or None
    cdef uint64_t start                  # in the block
    cdef uint64_t peek_next              # bytes of a message with which its model is looked for again
    cdef dict metadata                   # None unless the server's settings ask for it
    cdef bytes forwarded                 # metadata that become parameters, as JSON; or None
    cdef object unforwardable            # TisError: metadata that must not become parameters; or None
    cdef int64_t received_ns             # of the message's first byte, while requests may be traced
    cdef str peeked_id                   # of the message that is arriving, as far as it tells
    cdef object sample(self, InferInput input)   # a trace of the request, or None
    cdef int _peek(self, const uint8_t *data, uint64_t n, uint64_t total) except -1   # Peeked.  Raises TisError
    cdef int _take_block(self, uint64_t nbytes) except -1
    cdef int _note_come(self, uint64_t come) except -1     # bytes of the message that lie in the block
    cdef int _keep_promise(self) except -1
    cdef int _drop_message(self, object error) except -1   # the one that is arriving
    cdef InferInput read_request(self)   # the complete message.  Raises TisError
    # It is long, and a codec process reads it: `request_read` or `request_refused` is called then.  Raises TisError.
    cdef bint read_elsewhere(self) except -1
    cdef int request_read(self, InferInput input) except -1
    cdef int request_refused(self, object error) except -1
    cdef int _read_by_codec(self, object body, uint64_t nbytes, uint64_t expanded_max=*) except -1
    cdef bint _is_long(self) except -1

cdef class InferCall(InferenceStream):
    cdef InferInput input                # complete, until the client ends its side
    cdef InferRequest request            # while the engine has it
    cdef object trace                    # of a sampled request, or None
    cdef object written                  # codec.jobs.RenderJob: the answer is being compressed, or None
    cdef int _answer(self, OutMessage message) except -1
