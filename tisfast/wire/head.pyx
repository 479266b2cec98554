"""HTTP/1.x request heads; httptools (llhttp, strict) parses.  Layer 2 (wire).

llhttp refuses what smuggling needs: two Content-Lengths, Content-Length beside Transfer-Encoding, folded lines, control
characters.  Here the headers that a front acts upon become values; all others stay in `raw`.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.string cimport memchr

import httptools

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.wire.compress import choose

cdef Py_ssize_t HEAD_BYTES_MAX = limits.HTTP_HEAD_BYTES_MAX
cdef int64_t BODY_BYTES_MAX = limits.HTTP_BODY_BYTES_MAX
cdef int64_t JSON_BYTES_MAX = limits.JSON_HEAD_BYTES_PLAIN_MAX
cdef str JSON_BYTES_HEADER = "Inference-Header-Content-Length"


cdef class Head:
    """See head.pxd."""

    cpdef list headers(self):
        """(name, value) of each header line, as sent."""
        pairs = []
        for line in self.raw.split(b"\r\n")[1:-2]:
            name, _, value = line.partition(b":")
            pairs.append((name, value.strip(b" \t")))
        return pairs


cdef class Collector:
    """What llhttp reports about one head."""

    cdef bytes url
    cdef dict headers    # lower-case name -> list of values

    def __cinit__(self):
        self.headers = {}

    def on_url(self, bytes url):
        """The request target."""
        self.url = url

    def on_header(self, bytes name, bytes value):
        """One header line."""
        self.headers.setdefault(name.lower(), []).append(value)


cdef Py_ssize_t head_bytes(const unsigned char *data, Py_ssize_t n, Py_ssize_t from_byte) noexcept:
    cdef const unsigned char *at = data + (from_byte - 3 if from_byte > 3 else 0)
    cdef const unsigned char *end = data + n
    while True:
        at = <const unsigned char *>memchr(at, 10, end - at)
        if at == NULL:
            return 0
        at += 1
        if end - at >= 2 and at[0] == 13 and at[1] == 10 and at - 2 >= data and (at - 2)[0] == 13:
            return at + 2 - data


cdef int check_unfinished(const unsigned char *data, Py_ssize_t n, Py_ssize_t from_byte) except -1:
    cdef Py_ssize_t i
    if n == 0:
        return 0
    if data[0] == 0x16:
        raise BadRequest("this port speaks plain HTTP, the client began a TLS handshake; use http:// instead of https://")
    if not (c"A" <= data[0] <= c"Z"):
        raise BadRequest(f"malformed HTTP request: it starts with byte {data[0]:#04x} instead of a method")
    if n > HEAD_BYTES_MAX:
        raise BadRequest(f"HTTP request head exceeds {HEAD_BYTES_MAX} bytes")
    for i in range(max(from_byte, 1), n):
        if data[i] == 10 and data[i - 1] == 10:
            raise BadRequest("malformed HTTP request head: lines must end with CR LF")
    return 0


cdef Head parse_head(const unsigned char *data, Py_ssize_t n):
    cdef Collector seen = Collector()
    cdef Head head = Head.__new__(Head)
    check_unfinished(data, n, 0)
    head.raw = PyBytes_FromStringAndSize(<char *>data, n)
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(head.raw)
    except httptools.HttpParserUpgrade:
        pass  # HTTP/1.1 lets a server ignore the offer
    except httptools.HttpParserError as error:
        raise BadRequest(f"malformed HTTP request head: {error}") from None
    head.method = parser.get_method().decode("ascii")
    if seen.url is None or not parser.get_http_version().startswith("1."):
        raise BadRequest(f"HTTP/{parser.get_http_version()} is not served on this port, HTTP/1.0 and HTTP/1.1 are")
    head.minor_version = int(parser.get_http_version()[2:])
    read_target(head, seen.url)
    read_framing(head, seen.headers)
    read_codings(head, seen.headers)
    return head


cdef int read_target(Head head, bytes url) except -1:
    try:
        head.target = url.decode("ascii")
    except UnicodeDecodeError:
        raise BadRequest(f"malformed HTTP request target {url!r:.200}: bytes beyond ASCII must be percent-encoded") from None
    path = head.target
    if not path.startswith("/") and "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    path = path.partition("#")[0]
    head.path, _, head.query = path.partition("?")
    return 0


# The only value of a header that may be there once; a repetition of the same value is harmless.
cdef bytes single(dict headers, bytes name):
    cdef list values = headers.get(name)
    if values is None:
        return None
    if len(set(values)) > 1:
        raise BadRequest(f"HTTP request head has {len(values)} different {name.decode('latin-1')} headers: {values!r:.200}")
    return (<bytes>values[0]).strip(b" \t")


cdef set tokens(dict headers, bytes name):
    return {token.strip(b" \t").lower() for token in b",".join(headers.get(name, [])).split(b",")}


cdef int read_framing(Head head, dict headers) except -1:
    cdef bytes length = single(headers, b"content-length")
    cdef set connection = tokens(headers, b"connection")
    head.keep_alive = b"close" not in connection and (head.minor_version >= 1 or b"keep-alive" in connection)
    head.chunked = b"transfer-encoding" in headers
    if head.chunked and tokens(headers, b"transfer-encoding") != {b"chunked"}:
        raise BadRequest(f"Transfer-Encoding {headers[b'transfer-encoding']!r:.200} is not supported, chunked is")
    if head.chunked and length is not None:
        raise BadRequest("HTTP request head has both Content-Length and Transfer-Encoding")
    head.expects_continue = head.minor_version >= 1 and b"100-continue" in tokens(headers, b"expect")
    if length is not None:
        if not length.isdigit() or len(length) > 18 or int(length) > BODY_BYTES_MAX:
            raise BadRequest(f"Content-Length {length!r:.60} is not a number from 0 to {BODY_BYTES_MAX}")
        head.content_length = int(length)
    return 0


cdef int read_codings(Head head, dict headers) except -1:
    cdef bytes length = single(headers, b"inference-header-content-length")
    head.json_bytes = -1
    head.json_bytes_error = ""
    if length is not None:
        read_json_bytes(head, length.decode("latin-1"))
    coding = b",".join(headers.get(b"content-encoding", [])).strip(b" \t").lower()
    head.request_coding = "" if coding == b"identity" else coding.decode("latin-1")
    accepted = headers.get(b"accept-encoding")
    head.response_coding = choose(b",".join(accepted).decode("latin-1")) if accepted else ""
    return 0


# Kept as a text when unusable: it concerns inference requests only, and the connection can go on.
cdef int read_json_bytes(Head head, str text) except -1:
    digits = text[1:] if text[:1] == "-" else text
    if digits.isascii() and digits.isdigit():
        value = int(text[:20])
        if 0 <= value < JSON_BYTES_MAX:
            head.json_bytes = value
            return 0
        if value < 0:
            head.json_bytes_error = f"inference header size should be in range (0, {head.content_length}), got: {text[:60]}"
        else:
            head.json_bytes_error = (
                f"Unable to parse {JSON_BYTES_HEADER}, value is out of range [ 0, {JSON_BYTES_MAX - 1} ], got: {text[:60]}")
    else:
        head.json_bytes_error = f"Unable to parse {JSON_BYTES_HEADER}, got: {text[:60]}"
    head.json_bytes = -2
    return 0


def parse(bytes raw) -> Head:
    """Parse a whole head.  Raises BadRequest."""
    return parse_head(<const unsigned char *>raw, len(raw))


def find(bytes data, int from_byte=0) -> int:
    """Length of the head at the start of data, 0 when it is not complete; raises BadRequest when it cannot become one."""
    cdef Py_ssize_t found = head_bytes(<const unsigned char *>data, len(data), from_byte)
    if not found:
        check_unfinished(<const unsigned char *>data, len(data), from_byte)
    return found
