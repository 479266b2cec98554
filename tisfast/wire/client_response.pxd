# An inference response as a client reads it, of either protocol.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint64_t

cdef class InferResponse:
    """A model's answer.  Its outputs are views of the body that was read, which they keep."""
    cdef readonly str model
    cdef readonly str version
    cdef readonly str id
    cdef readonly dict parameters
    cdef readonly list outputs      # of BufferTensor
    cdef readonly bint final        # of a stream: no further answer to the same request comes

cdef class ResponseReader:
    """Reads the responses of one connection, or of one client: remembers the heads that it has read."""
    cdef dict heads                 # JSON without its leading id -> HeadOfResponse; bounded
    # body: a contiguous buffer, kept by the outputs; json_bytes: Inference-Header-Content-Length, -1: all is JSON.
    cdef InferResponse read(self, object body, int64_t json_bytes)
    cdef HeadOfResponse _head(self, const unsigned char *data, uint64_t n)

cdef class HeadOfResponse:
    """All of a response but its id and the bytes of its tensors."""
    cdef str model, version, id
    cdef dict parameters
    cdef list outputs               # of OutputHead
    cdef bint binary                # every output lies behind the head, or in a region: it may be remembered

cdef class OutputHead:
    cdef str name, datatype
    cdef tuple shape
    cdef object region
    cdef uint64_t offset, nbytes
    cdef list values                # spelled in the JSON, or None
