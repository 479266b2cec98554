"""HTTP/1.x request heads; httptools (llhttp, strict) parses.  Layer 2 (wire).

llhttp refuses what smuggling needs: two Content-Lengths, Content-Length beside Transfer-Encoding, folded lines, control
characters.  Here the headers that a front acts upon become values; all others stay in `raw`.
"""

from libc.stdint cimport int64_t
from libc.string cimport memchr

from urllib.parse import unquote

import httptools

from tisfast import limits
from tisfast.errors import BadRequest
from tisfast.wire.compress import choose

cdef extern from "<string.h>":
    void *memmem(const void *haystack, size_t n, const void *needle, size_t m) noexcept

cdef Py_ssize_t HEAD_BYTES_MAX = limits.HTTP_HEAD_BYTES_MAX
cdef int64_t BODY_BYTES_MAX = limits.HTTP_BODY_BYTES_MAX
cdef int64_t JSON_BYTES_MAX = limits.JSON_HEAD_BYTES_PLAIN_MAX
cdef dict CALLS = {"infer": INFER, "generate": GENERATE, "generate_stream": GENERATE_STREAM}
cdef str JSON_BYTES_HEADER = "Inference-Header-Content-Length"


cdef class MessageHead:
    """See head.pxd."""

    cpdef list headers(self):
        """(name, value) of each header line, as sent."""
        pairs = []
        lines = self.raw.split(b"\r\n")
        for line in lines[1 : len(lines) - 2]:
            name, _, value = line.partition(b":")
            pairs.append((name, value.strip(b" \t")))
        return pairs

    cdef object bad(self, str text):
        return BadRequest(text)

    cdef str kind(self):
        return "request"


cdef class Head(MessageHead):
    """See head.pxd."""

    def aim(self, str method, str path) -> None:
        """Ask for another path than the one that was sent.  Raises BadRequest."""
        self.method, self.path, self.call, self.is_infer = method, path, NO_CALL, False
        read_model(self)
        for name, value in self.headers() if self.is_infer else ():
            if name.lower() == b"inference-header-content-length":
                self.inference_header_length = json_bytes_of(self, value.decode("latin-1"))


cdef class HeaderLines:
    """See head.pxd."""

    def __cinit__(self):
        self.values = {}

    def on_url(self, bytes url):
        """The request target."""
        self.url = url

    def on_status(self, bytes reason):
        """llhttp's report of the text behind the status of a response."""
        self.reason = reason

    def on_header(self, bytes name, bytes value):
        """One header line."""
        self.values.setdefault(name.lower(), []).append(value)


cdef Py_ssize_t end_of_head(const unsigned char *data, Py_ssize_t n, Py_ssize_t searched) noexcept:
    cdef Py_ssize_t begin = searched - 3 if searched > 3 else 0
    cdef const unsigned char *end = <const unsigned char *>memmem(data + begin, n - begin, b"\r\n\r\n", 4)
    return 0 if end == NULL else end - data + 4


cdef Py_ssize_t head_bytes(const unsigned char *data, Py_ssize_t n, Py_ssize_t searched) except -1:
    cdef Py_ssize_t size = end_of_head(data, n, searched)
    if size:
        return size
    if n > HEAD_BYTES_MAX:
        raise BadRequest(f"HTTP request head exceeds {HEAD_BYTES_MAX} bytes")
    check_start(data, n)
    return 0


cdef int check_start(const unsigned char *data, Py_ssize_t n) except -1:
    cdef const unsigned char *end
    if n == 0:
        return 0
    if data[0] == 0x16:
        raise BadRequest("this port speaks plain HTTP, the client began a TLS handshake; use http:// instead of https://")
    if not (c"A" <= data[0] <= c"Z"):
        raise BadRequest(f"malformed HTTP request: it starts with byte {data[0]:#04x} instead of a method")
    end = <const unsigned char *>memchr(data, 10, n)
    if end != NULL and (end - 1)[0] != 13:
        raise BadRequest("malformed HTTP request head: lines must end with CR LF")
    return 0


cdef Head parse_head(bytes raw):
    cdef HeaderLines seen = HeaderLines()
    cdef Head head = Head.__new__(Head)
    if len(raw) > HEAD_BYTES_MAX:
        raise BadRequest(f"HTTP request head has {len(raw)} bytes, {HEAD_BYTES_MAX} is the limit")
    check_start(<const unsigned char *>raw, len(raw))
    head.raw = raw
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
    head.http10 = parser.get_http_version() == "1.0"
    read_target(head, seen.url)
    if len(seen.values.get(b"host", ())) > 1:
        raise BadRequest(f"HTTP request head has {len(seen.values[b'host'])} Host headers, one is allowed")
    read_framing(head, seen.values)
    head.expect_continue = not head.http10 and b"100-continue" in tokens(seen.values, b"expect")
    read_codings(head, seen.values)
    return head


cdef int read_target(Head head, bytes url) except -1:
    try:
        head.target = url.decode("ascii")
    except UnicodeDecodeError:
        raise BadRequest(f"malformed HTTP request target {url!r:.200}: bytes beyond ASCII must be percent-encoded") from None
    path = head.target
    head.path = path.partition("#")[0].partition("?")[0]
    if not path.startswith("/") and "://" in head.path:  # a query without a path begins no path
        head.path = "/" + head.path.partition("://")[2].partition("/")[2]
    return read_model(head)


# /v2/models/NAME[/versions/DIGITS]/infer, and the same of generate and generate_stream
cdef int read_model(Head head) except -1:
    cdef list parts
    head.name = head.version = ""
    if head.method != "POST" or not head.path.startswith("/v2/models/"):
        return 0
    parts = head.path[11:].split("/")
    call = CALLS.get(parts.pop(), NO_CALL)
    if call == NO_CALL:
        return 0
    if len(parts) == 3 and parts[1] == "versions" and parts[2].isdigit():
        head.version = version_number(parts[2])
    elif len(parts) != 1:
        return 0
    head.name = unquote(parts[0])
    if head.name != "":
        head.call = call
        head.is_infer = call == INFER
    return 0


# A repetition of the same value is harmless.
cdef bytes single(MessageHead head, dict headers, bytes name):
    cdef list values = headers.get(name)
    if values is None:
        return None
    if len(set(values)) > 1:
        raise head.bad(f"HTTP {head.kind()} head has {len(values)} different {name.decode('latin-1')} headers: {values!r:.200}")
    return (<bytes>values[0]).strip(b" \t")


cdef set tokens(dict headers, bytes name):
    return {token.strip(b" \t").lower() for token in b",".join(headers.get(name, [])).split(b",")}


cdef int read_framing(MessageHead head, dict headers) except -1:
    cdef bytes length = single(head, headers, b"content-length")
    cdef set connection = tokens(headers, b"connection")
    head.keep_alive = b"close" not in connection and (not head.http10 or b"keep-alive" in connection)
    head.chunked = b"transfer-encoding" in headers
    if head.chunked and tokens(headers, b"transfer-encoding") != {b"chunked"}:
        raise head.bad(f"Transfer-Encoding {headers[b'transfer-encoding']!r:.200} is not supported, chunked is")
    if head.chunked and length is not None:
        raise head.bad(f"HTTP {head.kind()} head has both Content-Length and Transfer-Encoding")
    head.content_length = -1
    if length is not None:
        if not length.isdigit() or len(length) > 18 or int(length) > BODY_BYTES_MAX:
            raise head.bad(f"Content-Length {length!r:.60} is not a number from 0 to {BODY_BYTES_MAX}")
        head.content_length = int(length)
    return 0


cdef int read_codings(Head head, dict headers) except -1:
    cdef bytes length = single(head, headers, b"inference-header-content-length")
    head.inference_header_length = -1
    if length is not None and head.is_infer:
        head.inference_header_length = json_bytes_of(head, length.decode("latin-1"))
    coding = b",".join(headers.get(b"content-encoding", [])).strip(b" \t").lower()
    head.content_encoding = "" if coding == b"identity" else coding.decode("latin-1")
    accepted = headers.get(b"accept-encoding")
    head.accepts_events = accepts(headers, b"text/event-stream")
    head.accept_encoding = choose(b",".join(accepted).decode("latin-1")) if accepted else ""
    return 0


cdef bint accepts(dict headers, bytes kind) except -1:
    """Whether Accept names this very type; */* does not count, as clients send it by default."""
    return b"accept" in headers and kind in {token.partition(b";")[0].strip() for token in tokens(headers, b"accept")}


cdef int64_t json_bytes_of(Head head, str text) except -1:
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise BadRequest(f"Unable to parse {JSON_BYTES_HEADER}, got: {text[:60]}")
    value = int(text) if len(text) <= 20 else JSON_BYTES_MAX
    if value < 0:
        most = f"(0, {head.content_length})" if head.content_length >= 0 else "(0, size of the body)"
        raise BadRequest(f"inference header size should be in range {most}, got: {text[:60]}")
    if value >= JSON_BYTES_MAX:
        raise BadRequest(
            f"Unable to parse {JSON_BYTES_HEADER}, value is out of range [ 0, {JSON_BYTES_MAX - 1} ], got: {text[:60]}")
    return value


# A version as the registry knows it: no leading zeros.  Raises Triton's text for what fits no 64-bit number.
cpdef str version_number(str digits):
    """The canonical text of a version in a URL."""
    if len(digits) > 19 or int(digits) > 0x7FFFFFFFFFFFFFFF:
        raise no_version(digits)
    return str(int(digits))


cpdef str canonical_version(str text):
    """The canonical text of a version that may be written in any way."""
    if text.isascii() and text.isdigit():
        return version_number(text)
    if text.isascii() and text.startswith("-") and text[1:].isdigit():
        raise BadRequest(f"invalid model version specified '{text[:60]}' , version should be an integral value > 0")
    raise no_version(text)


cdef no_version(str text):
    return BadRequest(
        f"failed to get model version from specified version string '{text[:60]}' (details: stol), version should be an "
        "integral value > 0")


def parse(bytes raw) -> Head:
    """Parse a whole head.  Raises BadRequest."""
    return parse_head(raw)


def find(bytes data, int searched=0) -> int:
    """Length of the head that data starts with, 0 when it is not complete; searched: bytes known to hold no end.

    Raises BadRequest when data cannot become a head.
    """
    return head_bytes(<const unsigned char *>data, len(data), searched)
