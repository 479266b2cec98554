# ModelInferRequest as a client writes it, ModelInferResponse as it reads it.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.buffer_tensor cimport BufferTensor
from tisfast.wire.client_request cimport WantedOutputs
from tisfast.wire.client_response cimport InferResponse
from tisfast.wire.text_buffer cimport TextBuffer

cdef class RequestMessage:
    """One message in the making.  Kept by a client and written again."""
    cdef TextBuffer text
    cdef list parts
    # Returns bytes and BufferTensors to be sent one behind the other; raw: as raw_input_contents, else typed.  Raises BadRequest.
    cdef list write(
        self, str model, str version, list inputs, WantedOutputs outputs, dict parameters, str id, bint raw)
    cdef int _raw(self, BufferTensor tensor) except -1

# message: bytes, which the outputs refer to.  Raises BadResponse.
cdef InferResponse read_response(bytes message, uint64_t begin, uint64_t end)
