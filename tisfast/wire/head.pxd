# One HTTP/1.x request head.  Layer 2 (wire).
from libc.stdint cimport int64_t

cdef enum Call:
    NO_CALL          # none of these, or not by POST
    INFER
    GENERATE
    GENERATE_STREAM

cdef class MessageHead:
    """The part that heads of requests and of responses share: a pure function of the head's bytes, so whoever sees the same bytes
    again may use the same object."""
    cdef readonly bytes raw              # with its blank line
    cdef readonly bint http10
    cdef readonly bint keep_alive
    cdef readonly bint chunked
    cdef readonly int64_t content_length # -1 when none was sent
    cpdef list headers(self)
    # The error of a head that cannot be read.
    cdef object bad(self, str text)
    cdef str kind(self)                  # of message, for these texts

# What says where the body ends, and whether another message may follow.  headers: lower-case name -> list of values.
cdef int read_framing(MessageHead head, dict headers) except -1

# The only value of a header that may be there once, None for none.
cdef bytes single(MessageHead head, dict headers, bytes name)

# Of a list, in lower case.
cdef set tokens(dict headers, bytes name)

cdef class HeaderLines:
    """Collects what llhttp reports about the head of a request or a response."""
    cdef bytes url
    cdef bytes reason
    cdef dict values     # lower-case name -> list of values

cdef class Head(MessageHead):
    """The head of a request."""
    cdef readonly str method
    cdef readonly str target             # as sent
    cdef readonly str path               # without scheme, authority and query; not percent-decoded
    cdef readonly bint is_infer          # call is INFER
    cdef readonly int call               # a Call; unless it is NO_CALL, name and version (digits, "" for any) are set
    cdef readonly str name               # of the model, percent-decoded
    cdef readonly str version
    cdef readonly bint expect_continue
    cdef readonly int64_t inference_header_length  # -1 when none was sent
    cdef readonly str content_encoding   # lower case; "" for none or identity
    cdef readonly str accept_encoding    # the coding that Accept-Encoding asks for: "gzip", "deflate" or ""
    cdef readonly bint accepts_events    # Accept names text/event-stream

# raw is a whole head with its blank line.  Raises BadRequest; the connection cannot go on after that.
cdef Head parse_head(bytes raw)

# Bytes of the head that data starts with, its blank line included; 0 when it is not complete yet.  searched: bytes known
# to hold no end.
cdef Py_ssize_t end_of_head(const unsigned char *data, Py_ssize_t n, Py_ssize_t searched) noexcept

# The same.  Raises BadRequest when data is too long for a head or cannot be the start of one.
cdef Py_ssize_t head_bytes(const unsigned char *data, Py_ssize_t n, Py_ssize_t searched) except -1

# Raises BadRequest when data cannot be the start of a head: another protocol, or a first line that ends with a bare LF.
cdef int check_start(const unsigned char *data, Py_ssize_t n) except -1

cpdef str version_number(str digits)

# Of any text.  Raises BadRequest.
cpdef str canonical_version(str text)
