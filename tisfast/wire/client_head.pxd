# Heads as a client needs them: of requests to write, of responses to read.  Layer 2 (wire).
from libc.stdint cimport int64_t
from tisfast.wire.head cimport MessageHead
from tisfast.wire.text_buffer cimport TextBuffer

cdef enum:               # in place of the bytes of a body
    NO_BODY = -1
    IN_CHUNKS = -2

cdef class RequestHead:
    """All of a request's head but the lengths of its body: made once, written for each request."""
    cdef readonly str method
    cdef readonly bytes text             # up to where the lengths go
    cdef readonly bint is_head           # the answer has no body, whatever it says
    # Appends the head of a request with so many bytes of body; json_bytes: those of its JSON where tensors follow, else -1.
    cdef int write(self, TextBuffer out, int64_t nbytes, int64_t json_bytes, bint expect_continue) except -1
    cdef bytes _value(self, int64_t nbytes, int64_t json_bytes, bint expect_continue)

cdef class ResponseHead(MessageHead):
    cdef readonly int status
    cdef readonly str reason
    cdef readonly int64_t inference_header_length    # -1 when none was sent
    cdef readonly str content_type       # lower case, without parameters; "" for none
    cdef readonly str content_encoding   # lower case; "" for none or identity
    cdef dict values                     # lower-case name -> list of values

# raw is a whole head with its blank line.  Raises BadResponse.
cdef ResponseHead parse_response_head(bytes raw)

# As head.head_bytes, of a response.  Raises BadResponse.
cdef Py_ssize_t response_head_bytes(const unsigned char *data, Py_ssize_t n, Py_ssize_t searched) except -1
