"""The head of a gRPC call, and the texts of its trailers.  Layer 4 (front).

Header names arrive in lower case (HTTP/2 demands it, nghttp2 checks it), pseudo-header fields first.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from urllib.parse import quote, unquote_to_bytes

from tisfast import limits

cdef enum:
    FIELD_OVERHEAD_BYTES = 32
    TIMEOUT_DIGITS_MAX = 8
    GZIP_BIT = 1 << 1
    DEFLATE_BIT = 1 << 2

cdef const char *SERVICE = b"/inference.GRPCInferenceService/"
cdef Py_ssize_t STATUS_TEXT_BYTES_MAX = limits.GRPC_STATUS_TEXT_BYTES_MAX
cdef str PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


cdef inline bint same(const uint8_t *a, size_t n, const char *b, size_t b_bytes) noexcept:
    return n == b_bytes and memcmp(a, b, n) == 0


cdef class CallHead:
    """See head.pxd."""

    cdef int begin(self, bint keep) except -1:
        self.method = OTHER
        self.path = ""
        self.is_post = self.is_grpc = self.wants_status = False
        self.timeout_ns = -1
        self.encoding = None
        self.accepts = 0
        self.metadata = None
        self.nbytes = 0
        self.keep = keep
        return 0

    cdef int field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1:
        self.nbytes += name_bytes + value_bytes + FIELD_OVERHEAD_BYTES
        if name_bytes and name[0] == c":":
            if same(name, name_bytes, b":path", 5):
                return self._path(value, value_bytes)
            if same(name, name_bytes, b":method", 7):
                self.is_post = same(value, value_bytes, b"POST", 4)
            return 0
        if same(name, name_bytes, b"content-type", 12):
            self.is_grpc = value_bytes >= 16 and memcmp(value, <const char *>b"application/grpc", 16) == 0 \
                and (value_bytes == 16 or value[16] == c"+" or value[16] == c";")
        elif same(name, name_bytes, b"grpc-timeout", 12):
            self.timeout_ns = timeout_ns(value, value_bytes)
        elif same(name, name_bytes, b"grpc-encoding", 13):
            self.encoding = None if same(value, value_bytes, b"identity", 8) else value[:value_bytes]
        elif same(name, name_bytes, b"grpc-accept-encoding", 20):
            self.accepts = accepted(value, value_bytes)
        elif same(name, name_bytes, b"triton_grpc_error", 17):
            self.wants_status = same(value, value_bytes, b"true", 4)
        if self.keep or self.method == OTHER:
            if self.metadata is None:
                self.metadata = {}
            self.metadata[name[:name_bytes].decode("latin-1")] = value[:value_bytes].decode("utf-8", "replace")
        return 0

    cdef int _path(self, const uint8_t *value, size_t n) except -1:
        if n >= 32 and memcmp(value, SERVICE, 32) == 0:
            if same(value + 32, n - 32, b"ModelInfer", 10):
                self.method = MODEL_INFER
                return 0
            if same(value + 32, n - 32, b"ModelStreamInfer", 16):
                self.method = MODEL_STREAM_INFER
                return 0
        self.path = value[:n].decode("utf-8", "replace")
        return 0


cdef int accepted(const uint8_t *value, size_t n) noexcept:
    """Bits of a list of codings; every client sends one with every call."""
    cdef size_t at = 0, end, last
    cdef int bits = 0
    while at < n:
        while at < n and (value[at] == c" " or value[at] == c"\t"):
            at += 1
        end = at
        while end < n and value[end] != c",":
            end += 1
        last = end
        while last > at and (value[last - 1] == c" " or value[last - 1] == c"\t"):
            last -= 1
        if same(value + at, last - at, b"gzip", 4):
            bits |= GZIP_BIT
        elif same(value + at, last - at, b"deflate", 7):
            bits |= DEFLATE_BIT
        at = end + 1
    return bits


cdef int64_t unit_ns(uint8_t unit) noexcept:
    if unit == c"H":
        return 3_600_000_000_000
    if unit == c"M":
        return 60_000_000_000
    if unit == c"S":
        return 1_000_000_000
    if unit == c"m":
        return 1_000_000
    if unit == c"u":
        return 1_000
    return 1 if unit == c"n" else 0


cdef int64_t timeout_ns(const uint8_t *value, size_t n) noexcept:
    cdef int64_t number = 0, unit
    cdef size_t i
    if n < 2 or n > TIMEOUT_DIGITS_MAX + 1:
        return -1
    for i in range(n - 1):
        if not c"0" <= value[i] <= c"9":
            return -1
        number = number * 10 + (value[i] - c"0")
    unit = unit_ns(value[n - 1])
    if unit == 0:
        return -1
    return INT64_MAX if number > INT64_MAX // unit else number * unit


cdef bytes message_text(str message):
    """Cut to what clients take, at a character."""
    cdef str text = quoted(message[:STATUS_TEXT_BYTES_MAX])
    if len(text) <= STATUS_TEXT_BYTES_MAX and len(message) <= STATUS_TEXT_BYTES_MAX:
        return text.encode()
    text = text[:STATUS_TEXT_BYTES_MAX - 3]
    at = text.rfind("%", STATUS_TEXT_BYTES_MAX - 5)
    if at >= 0:
        text = text[:at]
    return quoted(unquote_to_bytes(text).decode("utf-8", "ignore")).encode() + b"..."


cdef str quoted(str text):
    return quote(text, safe=PRINTABLE, encoding="utf-8", errors="backslashreplace")


def parse_timeout(bytes value) -> int:
    """Nanoseconds of a grpc-timeout, or -1."""
    return timeout_ns(value, len(value))


def accepted_codings(bytes value) -> int:
    """Bits of a grpc-accept-encoding: 2 for gzip, 4 for deflate."""
    return accepted(value, len(value))


def percent_encoded(str message) -> bytes:
    """A grpc-message."""
    return message_text(message)
