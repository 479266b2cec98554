# One HTTP/1.x request head.  Layer 2 (wire).
from libc.stdint cimport int64_t

cdef class Head:
    """A pure function of the head's bytes, so whoever sees the same bytes again may use the same Head."""
    cdef readonly bytes raw              # with its blank line
    cdef readonly str method
    cdef readonly str target             # as sent
    cdef readonly str path               # without scheme, authority and query; not percent-decoded
    cdef readonly str query
    cdef readonly int minor_version      # of HTTP/1.x
    cdef readonly bint keep_alive
    cdef readonly bint chunked
    cdef readonly bint expects_continue
    cdef readonly int64_t content_length # 0 when none was sent
    cdef readonly int64_t json_bytes     # Inference-Header-Content-Length; -1 absent, -2 unusable: json_bytes_error
    cdef readonly str json_bytes_error
    cdef readonly str request_coding     # Content-Encoding, lower case; "" for none or identity
    cdef readonly str response_coding    # "gzip", "deflate" or "": the client's choice by Accept-Encoding
    cdef public object route             # what the front makes of method and path, kept with them
    cpdef list headers(self)

# data[0:n] is a whole head with its blank line.  Raises BadRequest; the connection cannot go on after that.
cdef Head parse_head(const unsigned char *data, Py_ssize_t n)

# Bytes of the head at the start of data with its blank line; 0 when it is not complete yet.  from_byte: what was
# searched before.
cdef Py_ssize_t head_bytes(const unsigned char *data, Py_ssize_t n, Py_ssize_t from_byte) noexcept

# Raises BadRequest when data cannot become a head: another protocol, bare line feeds, or too long.
cdef int check_unfinished(const unsigned char *data, Py_ssize_t n, Py_ssize_t from_byte) except -1
