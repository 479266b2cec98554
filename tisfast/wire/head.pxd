# One HTTP/1.x request head.  Layer 2 (wire).
from libc.stdint cimport int64_t

cdef enum Call:
    NO_CALL          # none of these, or not by POST
    INFER
    GENERATE
    GENERATE_STREAM

cdef class Head:
    """A pure function of the head's bytes, so whoever sees the same bytes again may use the same Head."""
    cdef readonly bytes raw              # with its blank line
    cdef readonly str method
    cdef readonly str target             # as sent
    cdef readonly str path               # without scheme, authority and query; not percent-decoded
    cdef readonly bint is_infer          # call is INFER
    cdef readonly int call               # a Call; unless it is NO_CALL, name and version (digits, "" for any) are set
    cdef readonly str name               # of the model, percent-decoded
    cdef readonly str version
    cdef readonly bint http10
    cdef readonly bint keep_alive
    cdef readonly bint chunked
    cdef readonly bint expect_continue
    cdef readonly int64_t content_length # -1 when none was sent
    cdef readonly int64_t inference_header_length  # -1 when none was sent
    cdef readonly str content_encoding   # lower case; "" for none or identity
    cdef readonly str accept_encoding    # the coding that Accept-Encoding asks for: "gzip", "deflate" or ""
    cdef readonly bint accepts_events    # Accept names text/event-stream
    cpdef list headers(self)

# raw is a whole head with its blank line.  Raises BadRequest; the connection cannot go on after that.
cdef Head parse_head(bytes raw)

# Bytes of the head that data starts with, its blank line included; 0 when it is not complete yet.  searched: bytes known
# to hold no end.  Raises BadRequest when data is too long for a head or cannot be the start of one.
cdef Py_ssize_t head_bytes(const unsigned char *data, Py_ssize_t n, Py_ssize_t searched) except -1

# Raises BadRequest when data cannot be the start of a head: another protocol, or a first line that ends with a bare LF.
cdef int check_start(const unsigned char *data, Py_ssize_t n) except -1

cpdef str version_number(str digits)

# Of any text.  Raises BadRequest (row 1.12).
cpdef str canonical_version(str text)
