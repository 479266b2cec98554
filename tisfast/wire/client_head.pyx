"""Heads as a client needs them; see client_head.pxd.  Layer 2 (wire).

A request's head is checked when it is made: nothing that a caller puts into a name, a value or a target can begin another line.
A response's is read as strictly as a request's, by the same library.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp
from tisfast.wire.head cimport HeaderLines, end_of_head, read_framing, single

import re

import httptools

from tisfast import limits
from tisfast.errors import BadRequest, BadResponse

cdef Py_ssize_t HEAD_BYTES_MAX = limits.HTTP_HEAD_BYTES_MAX
cdef const char *VERSION = "HTTP/1."
cdef object TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
cdef object TARGET = re.compile(r"[!-~]+")
cdef object VALUE = re.compile(r"[\t\x20-\x7E\x80-\xFF]*")
cdef frozenset OURS = frozenset({"host", "content-length", "transfer-encoding", "expect", "inference-header-content-length"})


cdef class RequestHead:
    """target: path and query, percent-encoded; host: HOST[:PORT]; headers: further ones, (name, value) of latin-1 text.

    Raises BadRequest for what would not be one header line, and for a header that is written here by itself.
    """

    def __init__(self, str method, str target, str host, headers=()):
        for text, form, what in ((method, TOKEN, "method"), (target, TARGET, "request target"), (host, TARGET, "host")):
            if form.fullmatch(text) is None:
                raise BadRequest(f"{text!r:.100} is no HTTP {what}")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
        for name, value in headers:
            if TOKEN.fullmatch(name) is None or VALUE.fullmatch(value) is None:
                raise BadRequest(f"{name!r:.60}: {value!r:.100} is no HTTP header")
            if name.lower() in OURS:
                raise BadRequest(f"the header {name} is written with the body, and cannot be set")
            lines.append(f"{name}: {value}")
        self.method = method
        self.is_head = method == "HEAD"
        self.text = "\r\n".join(lines).encode("latin-1") + b"\r\n"
        if len(self.text) > HEAD_BYTES_MAX:
            raise BadRequest(f"HTTP request head has {len(self.text)} bytes, {HEAD_BYTES_MAX} is the limit")

    cdef int write(self, TextBuffer out, int64_t nbytes, int64_t json_bytes, bint expect_continue) except -1:
        out.put_bytes(self.text)
        if json_bytes >= 0:
            out.put_bytes(b"Inference-Header-Content-Length: ")
            out.put_uint(<uint64_t>json_bytes)
            out.put(b"\r\n", 2)
        if expect_continue:
            out.put_bytes(b"Expect: 100-continue\r\n")
        if nbytes == IN_CHUNKS:
            out.put_bytes(b"Transfer-Encoding: chunked\r\n")
        elif nbytes >= 0:
            out.put_bytes(b"Content-Length: ")
            out.put_uint(<uint64_t>nbytes)
            out.put(b"\r\n", 2)
        return out.put(b"\r\n", 2)

    def with_body(self, int64_t nbytes, int64_t json_bytes=-1, *, bint expect_continue=False) -> bytes:
        """The head of a request with a body of so many bytes; json_bytes: of its JSON, where tensors follow it."""
        if nbytes < 0:
            raise ValueError(f"a body of {nbytes} bytes")
        return self._value(nbytes, json_bytes, expect_continue)

    def in_chunks(self, *, bint expect_continue=False) -> bytes:
        """The head of a request whose body comes as `chunk`s, the last of them empty."""
        return self._value(IN_CHUNKS, -1, expect_continue)

    def without_body(self) -> bytes:
        """The head of a request that is nothing else."""
        return self._value(NO_BODY, -1, False)

    cdef bytes _value(self, int64_t nbytes, int64_t json_bytes, bint expect_continue):
        cdef TextBuffer out = TextBuffer(len(self.text) + 128)
        self.write(out, nbytes, json_bytes, expect_continue)
        return out.value()


cdef class ResponseHead(MessageHead):
    """The head of a response."""

    cdef object bad(self, str text):
        return BadResponse(text)

    cdef str kind(self):
        return "response"

    def first(self, str name) -> str | None:
        """The first value of this header, in any case; None: it has none."""
        found = self.values.get(name.lower().encode("latin-1"))
        return None if found is None else (<bytes>found[0]).strip(b" \t").decode("latin-1")


cdef Py_ssize_t response_head_bytes(const unsigned char *data, Py_ssize_t n, Py_ssize_t searched) except -1:
    cdef Py_ssize_t size = end_of_head(data, n, searched)
    if memcmp(data, VERSION, min(n, 7)) != 0:
        raise BadResponse(f"the server does not speak HTTP/1.1: its answer begins with {data[:min(n, 20)]!r}")
    if size == 0 and n > HEAD_BYTES_MAX:
        raise BadResponse(f"HTTP response head exceeds {HEAD_BYTES_MAX} bytes")
    return size


cdef ResponseHead parse_response_head(bytes raw):
    cdef HeaderLines seen = HeaderLines()
    cdef ResponseHead head = ResponseHead.__new__(ResponseHead)
    cdef bytes length
    if len(raw) > HEAD_BYTES_MAX:
        raise BadResponse(f"HTTP response head has {len(raw)} bytes, {HEAD_BYTES_MAX} is the limit")
    head.raw = raw
    parser = httptools.HttpResponseParser(seen)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # its status says so
    except httptools.HttpParserError as error:
        raise BadResponse(f"malformed HTTP response head: {error}") from None
    head.status = parser.get_status_code()
    if not 100 <= head.status <= 599:
        raise BadResponse(f"HTTP response has status {head.status}, which is none from 100 to 599")
    head.http10 = parser.get_http_version() == "1.0"
    head.reason = "" if seen.reason is None else seen.reason.decode("latin-1")
    head.values = seen.values
    read_framing(head, seen.values)
    head.inference_header_length = -1
    length = single(head, seen.values, b"inference-header-content-length")
    if length is not None:
        if not length.isdigit() or len(length) > 18:
            raise BadResponse(f"Inference-Header-Content-Length {length!r:.60} is no number of bytes")
        head.inference_header_length = int(length)
    head.content_type = (head.first("content-type") or "").partition(";")[0].strip().lower()
    coding = (head.first("content-encoding") or "").strip().lower()
    head.content_encoding = "" if coding == "identity" else coding
    return head


def parse(bytes raw) -> ResponseHead:
    """Parse a whole head.  Raises BadResponse."""
    return parse_response_head(raw)


def chunk(bytes data) -> bytes:
    """A piece of a body as a chunk; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)
