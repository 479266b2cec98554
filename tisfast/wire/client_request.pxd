# An inference request as a client writes it over HTTP.  Layer 2 (wire).
from libc.stdint cimport int64_t, uint64_t
from tisfast.wire.text_buffer cimport TextBuffer

cdef class WantedOutputs:
    """Which outputs are asked for, and how each is to be given.  Immutable, and used for any number of requests."""
    cdef readonly tuple outputs     # of WantedOutput
    cdef readonly bytes json        # the entry of an HTTP request's JSON, b"" when all outputs are asked for
    cdef readonly bytes message     # the fields of a ModelInferRequest

cdef class RequestBody:
    """The body of one request: JSON in `text`, then the tensors in `parts`, where they lie.  Kept by a client and written again."""
    cdef TextBuffer text
    cdef readonly list parts        # of BufferTensor, none of them empty
    cdef readonly uint64_t nbytes   # of the whole body
    cdef readonly int64_t json_bytes    # Inference-Header-Content-Length, -1 when nothing follows the JSON
    # Raises BadRequest.
    cdef int write(self, list inputs, WantedOutputs outputs, dict parameters, str id, bint binary) except -1
    cdef int _input(self, object tensor, bint binary) except -1
