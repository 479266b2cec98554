# An Answer becomes a ModelInferResponse or a ModelStreamInferResponse.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.record cimport Answer, InferInput
from tisfast.wire.text_buffer cimport TextBuffer

cdef enum:
    UNARY = 0       # ModelInferResponse
    STREAMED = 1    # ModelStreamInferResponse around it, with the parameter triton_final_response

cdef struct Piece:
    const unsigned char *data   # in `text` or in the answer's blocks
    uint64_t nbytes             # > 0

cdef class GrpcBody:
    """One rendered message, without its gRPC length prefix.  Kept by a front and rendered into again.

    Pieces hold until the next render; those in the answer's blocks as long as the Answer lives.
    """
    cdef TextBuffer text
    cdef Piece *pieces
    cdef int count
    cdef int room
    cdef uint64_t nbytes        # of all pieces
    cdef int render(self, Answer answer, int mode, bint final) except -1
    # A decoupled model has ended: only with request.outputs.empty_final.
    cdef int render_empty_final(self, InferInput request) except -1
    # A request of a stream that was refused; name and version "" when they are not known.
    cdef int render_stream_error(self, str message, str id, str name, str version) except -1
    # A request of a stream that failed once it was with the model: also says whether further answers come.
    cdef int render_stream_failure(self, str message, InferInput request, bint final) except -1
    cdef int add_piece(self, const unsigned char *data, uint64_t nbytes) except -1
    cdef int wrap(self, str error) except -1

# Bytes of an answer that must be compared (classes), or compressed if it is `coded`.
cdef uint64_t written_bytes(Answer answer, bint coded) except? 0xFFFFFFFFFFFFFFFF
