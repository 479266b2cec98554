"""One gRPC connection of a client without a socket; see client_session.pxd.  Layer 2 (wire).

Bytes of the server go in by `take`, which returns what happened; bytes for the server come out of `outgoing`.  A message that
is sent is not copied before that.  A server's mistake ends its call with the status that gRPC's libraries give it; bytes that
are not HTTP/2 end the session.
"""

import base64
from collections import deque
from io import BytesIO
from urllib.parse import unquote

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tisfast.native.gather_write cimport Outgoing
from tisfast.native.http2 cimport CANCEL, NO_ERROR, REFUSED_STREAM, Field, copied_field
from tisfast.wire.buffer_tensor cimport BufferTensor

from tisfast import limits, tuning
from tisfast.errors import BadRequest, BadResponse, TisError
from tisfast.wire.compress import compress, decompress

cdef enum:
    PREFIX_BYTES = 5
    FIELDS_MAX = 64             # of a request: our nine, and metadata

cdef size_t COPIED_BYTES_MAX = tuning.GRPC_COPIED_PIECE_BYTES_MAX

cdef enum:                      # gRPC's codes
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14

cdef dict OF_HTTP = {400: INTERNAL, 401: 16, 403: 7, 404: UNIMPLEMENTED, 429: UNAVAILABLE, 502: UNAVAILABLE, 503: UNAVAILABLE, 504: UNAVAILABLE}
cdef dict OF_RESET = {NO_ERROR: INTERNAL, REFUSED_STREAM: UNAVAILABLE, CANCEL: CANCELLED, 0xB: RESOURCE_EXHAUSTED, 0xC: 7}
cdef tuple UNITS = ((1, b"n"), (1_000, b"u"), (1_000_000, b"m"), (1_000_000_000, b"S"), (60_000_000_000, b"M"), (3_600_000_000_000, b"H"))
cdef frozenset OURS = frozenset({"te", "content-type", "user-agent", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "host"})
cdef uint64_t UNREAD_MAX = limits.CLIENT_UNREAD_BYTES_MAX
cdef uint64_t MESSAGE_MAX = limits.GRPC_MESSAGE_BYTES_MAX


cdef class OutPart:
    """See client_session.pxd."""


cdef OutPart bytes_part(bytes data):
    cdef OutPart part = OutPart.__new__(OutPart)
    part.owner, part.nbytes = data, <size_t>PyBytes_GET_SIZE(data)
    part.data = <const unsigned char *>PyBytes_AS_STRING(data)
    return part


cdef OutPart tensor_part(BufferTensor tensor):
    cdef OutPart part = OutPart.__new__(OutPart)
    if tensor.region is not None:
        raise BadRequest(f"tensor '{tensor.name}' is in the region '{tensor.region}'")
    part.owner, part.data, part.nbytes = tensor, tensor.data, <size_t>tensor.nbytes
    return part


cdef class GrpcCall:
    """See client_session.pxd."""

    def __cinit__(self):
        self.parts = deque()
        self.code = -1
        self.text = self.encoding = ""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that are sent and have not left through `outgoing`."""
        return self.waiting


cdef class GrpcClientSession(Http2Client):
    """authority: HOST:PORT; message_max: bytes of one message of the server, as it comes and expanded."""

    def __init__(self, str authority, *, str scheme="http", str user_agent="tisfast", uint64_t message_max=MESSAGE_MAX):
        self.authority, self.scheme, self.user_agent = authority.encode(), scheme.encode(), user_agent.encode()
        self.message_max = message_max
        self.events = []

    # ---- calls

    def start(self, str path, *, metadata=(), int64_t timeout_ns=0, str encoding="", bint paced=False) -> GrpcCall:
        """Begin a call of /PACKAGE.SERVICE/METHOD.

        metadata: (name, value) of further fields, the value bytes where the name ends with -bin.  timeout_ns: the server is
        told to give up after so long; 0: never.  encoding: its messages are compressed so ("gzip", "deflate").  paced: the server may
        not run ahead of `taken` by more than some messages.
        Raises BadRequest for what is no metadata.
        """
        cdef GrpcCall call = GrpcCall.__new__(GrpcCall)
        cdef Field fields[FIELDS_MAX]
        cdef list pairs = [
            (b":method", b"POST"), (b":scheme", self.scheme), (b":path", path.encode()), (b":authority", self.authority),
            (b"te", b"trailers"), (b"content-type", b"application/grpc"), (b"user-agent", self.user_agent),
            (b"grpc-accept-encoding", b"identity, deflate, gzip")]
        cdef int n = 0
        if timeout_ns > 0:
            pairs.append((b"grpc-timeout", timeout_text(timeout_ns)))
        if encoding:
            pairs.append((b"grpc-encoding", encoding.encode()))
        pairs += [metadata_field(name, value) for name, value in metadata]
        if len(pairs) > FIELDS_MAX:
            raise BadRequest(f"a call has {len(pairs)} fields with its metadata, {FIELDS_MAX} is the limit")
        for name, value in pairs:
            fields[n] = copied_field(
                PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
            n += 1
        call.path = path
        call.encoding = encoding
        call.paced = paced
        call.id = self.request(fields, n, call, True)
        return call

    def send(self, GrpcCall call, message, *, bint last=False) -> None:
        """Send a message, bytes or a list of bytes and BufferTensor; last: the client sends nothing behind it.

        Raises BadRequest for a tensor in a region, a message that is too long, and a call that takes none any more.
        """
        if call.half_closed or call.code >= 0:
            raise BadRequest(f"the call of {call.path} takes no further message")
        self._add(call, message)
        call.half_closed = last
        self._flow(call)

    def finish_sending(self, GrpcCall call) -> None:
        """Nothing more is sent in this call; answers still come."""
        call.half_closed = True
        self._flow(call)

    def cancel(self, GrpcCall call) -> None:
        """End the call; the server is told."""
        if call.code < 0:
            self._fail(call, CANCELLED, "cancelled by the client")

    def taken(self, GrpcCall call, bytes message) -> None:
        """A message of a paced call is read: the server may send more."""
        call.unread -= PREFIX_BYTES + <uint64_t>len(message)
        if call.withheld and call.unread <= UNREAD_MAX:
            self.consumed(call.id, 0, call.withheld)
            call.withheld = 0

    cdef int _add(self, GrpcCall call, object message) except -1:
        cdef list parts = [bytes_part(message)] if type(message) is bytes else [
            bytes_part(piece) if type(piece) is bytes else tensor_part(piece) for piece in message]
        cdef OutPart part
        cdef uint64_t nbytes = 0
        if call.encoding:
            parts = [bytes_part(compress(call.encoding, *[(<OutPart>each).data[:(<OutPart>each).nbytes] for each in parts]))]
        for part in parts:
            nbytes += part.nbytes
        if nbytes > MESSAGE_MAX:
            raise BadRequest(f"a message of {nbytes} bytes is more than gRPC can send ({MESSAGE_MAX})")
        call.parts.append(bytes_part((b"\1" if call.encoding else b"\0") + (<object>nbytes).to_bytes(4, "big")))
        call.parts.extend(parts)
        call.waiting += PREFIX_BYTES + nbytes
        return 0

    cdef int _flow(self, GrpcCall call) except -1:
        if call.deferred:
            call.deferred = False
            self.resume(call.id)
        return 0

    # ---- bytes

    def take(self, bytes data) -> list:
        """Read bytes of the server: gives ("head", call, metadata), ("message", call, bytes), ("end", call, trailers).

        Behind "end" the call has `code` and `text`.  Raises BadResponse when the bytes are not HTTP/2.
        """
        if self.receive(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
            raise BadResponse(f"the server does not speak HTTP/2: it sent {data[:20]!r}")
        return self._told()

    def lost(self) -> list:
        """The connection is gone: the ends of all calls, which are UNAVAILABLE."""
        for call in list(self.streams.values()):
            self._finish(<GrpcCall>call, UNAVAILABLE, "the connection to the server was lost")
        self.streams.clear()
        return self._told()

    cdef list _told(self):
        events, self.events = self.events, []
        return events

    def outgoing(self) -> bytes:
        """The bytes to send now; b"" for none."""
        cdef Outgoing out = self.out
        cdef list found = []
        cdef int i
        while self.collect():
            found += [(<char *>out.pieces[i].iov_base)[:out.pieces[i].iov_len] for i in range(out.count)]
            out.clear()
        return b"".join(found)

    @property
    def ended(self) -> bool:
        """Neither side has anything to say any more: the connection is to be closed."""
        return self.over()

    @property
    def calls_max(self) -> int:
        """Calls that the server takes at one time; those beyond wait here."""
        return self.streams_max()

    # ---- told by the session

    cdef int on_response_begins(self, object stream) except -1:
        self.heading = stream
        self.heading.fields = {}
        return 0

    cdef int on_field(self, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes) except -1:
        if self.heading is not None:
            self.heading.fields[name[:name_bytes].decode("latin-1")] = value[:value_bytes].decode("utf-8", "replace")
        return 0

    cdef int on_response(self, object stream) except -1:
        cdef GrpcCall call = stream
        cdef dict fields = call.fields
        self.heading = None
        if call.code >= 0:
            return 0
        if ":status" in fields:
            status = int(fields.pop(":status"))  # the library has checked that it is a number
            if status < 200:
                return 0
            call.http_status = status
            call.metadata = fields
            self.events.append(("head", call, fields))
            if "grpc-status" not in fields:
                return 0
        call.trailers = fields
        return 0

    cdef int on_data(self, object stream, const uint8_t *data, size_t n) except -1:
        cdef GrpcCall call = stream
        cdef size_t at = 0, part
        if call.unread > UNREAD_MAX:
            call.withheld += n
            self.consumed(call.id, n, 0)
        else:
            self.consumed(call.id, n, n)
        while at < n and call.code < 0 and call.http_status == 200:
            if call.body is None:
                part = min(n - at, <size_t>(PREFIX_BYTES - call.prefix_bytes))
                memcpy(call.prefix + call.prefix_bytes, data + at, part)
                call.prefix_bytes += <int>part
                if call.prefix_bytes == PREFIX_BYTES:
                    self._on_prefix(call)
            else:
                part = min(n - at, <size_t>(call.total - call.filled))
                call.filled += part
                if part == call.total:
                    self._on_message(call, data[at:at + part])
                else:
                    call.body.write(data[at:at + part])
                    if call.filled == call.total:
                        self._on_message(call, call.body.getvalue())
            at += part
        return 0

    cdef int _on_prefix(self, GrpcCall call) except -1:
        cdef const uint8_t *prefix = call.prefix
        call.total = <uint64_t>prefix[1] << 24 | <uint64_t>prefix[2] << 16 | <uint64_t>prefix[3] << 8 | prefix[4]
        call.filled = 0
        if call.total > self.message_max:
            return self._fail(
                call, RESOURCE_EXHAUSTED, f"the server's message has {call.total} bytes, {self.message_max} is the limit")
        if prefix[0] > 1:
            return self._fail(call, INTERNAL, f"the server's message begins with {prefix[0]}, which is no flag of compression")
        if call.total == 0:
            return self._on_message(call, b"")
        call.body = BytesIO()
        return 0

    cdef int _on_message(self, GrpcCall call, bytes message) except -1:
        call.body, call.prefix_bytes = None, 0
        if call.prefix[0]:
            try:
                message = decompress(call.metadata.get("grpc-encoding", "identity"), message, self.message_max, "")
            except TisError as error:
                return self._fail(call, INTERNAL, f"the server's message cannot be expanded: {error.message}")
        if call.paced:
            call.unread += PREFIX_BYTES + <uint64_t>len(message)
        self.events.append(("message", call, message))
        return 0

    cdef int on_end(self, object stream) except -1:
        """The server has said all; what this side has still to send, nobody waits for."""
        cdef GrpcCall call = stream
        if call.code >= 0:
            return 0
        self._conclude(call)
        return 0 if call.half_closed and call.waiting == 0 else self.reset(call.id, CANCEL)

    cdef int on_closed(self, object stream, uint32_t error_code) except -1:
        cdef GrpcCall call = stream
        if call.code >= 0:  # `on_end` has concluded it
            return 0
        if call.trailers is None and (error_code != NO_ERROR or call.http_status == 0):  # no answer ends before its head
            return self._finish(call, OF_RESET.get(error_code, INTERNAL), f"the server reset the call (HTTP/2 error {error_code})")
        return self._conclude(call)

    cdef int _conclude(self, GrpcCall call) except -1:
        if call.http_status != 200 and (call.trailers is None or "grpc-status" not in call.trailers):
            return self._finish(call, OF_HTTP.get(call.http_status, UNKNOWN), f"the server answered with HTTP status {call.http_status}")
        if call.trailers is None or "grpc-status" not in call.trailers:
            return self._finish(call, UNKNOWN, "the server ended the call without a status")
        status = call.trailers["grpc-status"]
        code = int(status) if status.isascii() and status.isdigit() and len(status) < 10 else UNKNOWN
        if code == OK and (call.prefix_bytes or call.body is not None):
            return self._finish(call, INTERNAL, "the server ended the call in the middle of a message")
        text = call.trailers.get("grpc-message", "")
        return self._finish(call, code, unquote(text, errors="replace") if text else "")

    cdef int _finish(self, GrpcCall call, int code, str text) except -1:
        if call.code < 0:
            call.code, call.text = code, text
            call.body = None  # what it sends stays: a frame of it may have been begun
            self.events.append(("end", call, call.trailers or {}))
        return 0

    cdef int _fail(self, GrpcCall call, int code, str text) except -1:
        self._finish(call, code, text)
        return self.reset(call.id, CANCEL)

    cdef int on_goaway(self, int32_t last_stream_id, uint32_t error_code) except -1:
        self.leaving = True
        return 0

    cdef ssize_t on_room(self, object stream, size_t most, bint *end) except -1:
        cdef GrpcCall call = stream
        cdef size_t n = min(most, call.waiting)
        end[0] = call.half_closed and n == call.waiting
        call.deferred = n == 0 and not end[0]
        return n

    cdef int on_take(self, object stream, Outgoing out, size_t n) except -1:
        cdef GrpcCall call = stream
        cdef OutPart part
        cdef size_t used
        call.waiting -= n
        while n:
            part = <OutPart>call.parts[0]
            used = min(n, part.nbytes)
            if used <= COPIED_BYTES_MAX and not out.full():
                out.put(part.data, used)
            else:
                out.add(part.data, used)
                out.keep(part.owner)
            part.data += used
            part.nbytes -= used
            n -= used
            if part.nbytes == 0:
                call.parts.popleft()
        return 0


cdef tuple metadata_field(str name, object value):
    cdef str lower = name.lower()
    if not lower.isascii() or not lower or lower.startswith((":", "grpc-")) or lower in OURS \
            or not all([c.isalnum() or c in "-_." for c in lower]):
        raise BadRequest(f"{name!r:.60} is no name of metadata")
    if type(value) is bytes:
        if not lower.endswith("-bin"):
            raise BadRequest(f"metadata '{name}' has bytes, which a name that ends with -bin may have")
        return lower.encode(), base64.b64encode(value).rstrip(b"=")
    if not value.isascii() or not value.isprintable():
        raise BadRequest(f"metadata '{name}' has a value that is not printable ASCII")
    return lower.encode(), value.encode()


def timeout_text(int64_t timeout_ns) -> bytes:
    """A grpc-timeout: at most eight digits and a unit, rounded up."""
    for unit, letter in UNITS:
        number = -(-<object>timeout_ns // unit)
        if number < 100_000_000:
            return b"%d%b" % (number, letter)
    return b"99999999H"
