"""HTTP/1.1 sessions without a socket, of a server and of a client; see http1.pxd.  Layer 2 (wire).

A head that is the same bytes as the one before is not parsed again: clients repeat themselves, and so do servers.  How a body
ends is RFC 9112, 6.3; what could be read in two ways is refused, because lenience here is how requests are smuggled.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp
from tisfast.wire.client_head cimport RequestHead, parse_response_head, response_head_bytes
from tisfast.wire.head cimport head_bytes, parse_head

from tisfast import limits
from tisfast.errors import BadRequest, BadResponse, TisError

cdef int INTERIM_MAX = limits.HTTP_INTERIM_RESPONSES_MAX
cdef uint64_t BODY_BYTES_MAX = limits.HTTP_BODY_BYTES_MAX


cdef class Http1Session:
    """See http1.pxd.  Cython has no abstract methods: what raises here is overridden."""

    cdef Py_ssize_t find_head(self, const unsigned char *data, Py_ssize_t n) except -1:
        raise NotImplementedError("find_head")

    cdef int read_head(self) except -1:
        raise NotImplementedError("read_head")

    cdef int begin_body(self) except -1:
        raise NotImplementedError("begin_body")

    cdef MessageHead latest(self):
        raise NotImplementedError("latest")

    cdef int count(self) except -1:
        return 0  # a server's body reader bounds what it keeps

    cdef object bad_chunk(self, object error):
        return error

    cdef int feed(self, const unsigned char *data, Py_ssize_t n) except -1:
        self.begin, self.end = data, data + n
        if self.rest is not None:
            if n:
                self.rest = self.rest + data[:n]
            self.begin = <const unsigned char *>PyBytes_AS_STRING(self.rest)
            self.end = self.begin + PyBytes_GET_SIZE(self.rest)
        self.at = self.begin
        return 0

    cdef bint settle(self) except -1:
        cdef bint moved = self.at > self.begin
        if self.position == DROPPED or self.at == self.end:
            self.rest = None
            moved = False
        elif moved or self.rest is None:
            self.rest = self.at[:self.end - self.at]
        self.begin = self.at = self.end = NULL
        return moved

    cdef int next(self) except -1:
        cdef Py_ssize_t n = self.end - self.at
        if self.position == BETWEEN:
            return self._head()
        if self.position == LENGTH:
            if self.left == 0:
                self.position = BETWEEN
                return END
            n = <Py_ssize_t>min(<uint64_t>n, self.left)
            self.left -= <uint64_t>n
        elif self.position == CHUNKS:
            return self._chunk()
        elif self.position == DROPPED:
            self.at = self.end
            return NEED_MORE
        if n == 0:
            return NEED_MORE
        self.data, self.nbytes = self.at, n
        self.at += n
        if self.position == CLOSE:
            self.count()
        return DATA

    cdef int _head(self) except -1:
        cdef Py_ssize_t size
        while self.at < self.end and (self.at[0] == 13 or self.at[0] == 10):
            self.at += 1  # empty lines before a message are to be ignored (RFC 9112, 2.2)
        if self.at == self.end:
            return NEED_MORE
        size = self.find_head(self.at, self.end - self.at)
        self.searched = 0 if size else self.end - self.at
        if size == 0:
            return NEED_MORE
        self.fresh = self.raw is None or PyBytes_GET_SIZE(self.raw) != size \
            or memcmp(PyBytes_AS_STRING(self.raw), self.at, size) != 0
        if self.fresh:
            self.raw = self.at[:size]
            self.read_head()
        self.at += size
        self.begin_body()
        return HEAD

    cdef int _chunk(self) except -1:
        try:
            self.at += self.decoder.next(self.at, self.end - self.at, &self.data, &self.nbytes)
        except BadRequest as error:
            raise self.bad_chunk(error) from None
        if self.nbytes:
            self.count()
            return DATA
        if not self.decoder.done:
            return NEED_MORE
        self.position, self.decoder = BETWEEN, None
        return END

    cdef bint received(self, uint64_t n) noexcept:
        self.left -= n
        if self.left == 0:
            self.position = BETWEEN
        return self.left == 0

    cdef int drop(self) except -1:
        self.position, self.decoder, self.left = DROPPED, None, 0
        self.at = self.end
        return 0

    def receive(self, bytes data) -> list:
        """The events of these bytes: ("head", its head), ("data", bytes) and ("end", None).

        Raises TisError for what is not HTTP/1.x, and nothing that comes is looked at from then on.
        """
        cdef list events = []
        cdef int event
        self.feed(<const unsigned char *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        try:
            event = self.next()
            while event != NEED_MORE:
                if event == HEAD:
                    events.append(("head", self.latest()))
                elif event == DATA:
                    events.append(("data", self.data[:self.nbytes]))
                else:
                    events.append(("end", None))
                event = self.next()
        except TisError:
            self.drop()
            raise
        finally:
            self.settle()
        return events


cdef class Http1Server(Http1Session):
    """See http1.pxd."""

    cdef Py_ssize_t find_head(self, const unsigned char *data, Py_ssize_t n) except -1:
        return head_bytes(data, n, self.searched)

    cdef int read_head(self) except -1:
        self.head = None
        self.head = parse_head(self.raw)
        return 0

    cdef int begin_body(self) except -1:
        cdef Head head = self.head
        self.continue_owed = head.expect_continue and (head.chunked or head.content_length > 0)
        if head.chunked:
            self.position, self.decoder = CHUNKS, ChunkDecoder.__new__(ChunkDecoder)
        else:
            self.position, self.left = LENGTH, max(head.content_length, 0)
        return 0

    cdef MessageHead latest(self):
        return self.head


cdef class Http1Client(Http1Session):
    """See http1.pxd.  body_max: bytes that the body of one response may have.

    `sent` tells of each request; then `receive` (or feed, next and settle) gives the responses, and `closed` is called when
    the connection is: a body may end there.
    """

    def __cinit__(self, *, uint64_t body_max=BODY_BYTES_MAX):
        self.asked = deque()
        self.reusable = True
        self.body_max = body_max

    cpdef int sent(self, RequestHead request) except -1:
        """A request with this head is being sent."""
        self.asked.append(request.is_head)
        return 0

    @property
    def outstanding(self) -> int:
        """Requests whose response has not begun."""
        return len(self.asked)

    @property
    def body_left(self) -> int:
        """Bytes of the body of known length that have not come: they may be received anywhere, and `took` told of them."""
        return self.left if self.position == LENGTH else 0

    def took(self, uint64_t n) -> bool:
        """So many bytes of the body have come elsewhere.  True: it is whole, and ("end", None) is not told."""
        if self.position != LENGTH or n > self.left or self.rest is not None:
            raise ValueError(f"{n} bytes of a body of which {self.body_left} are left")
        return self.received(n)

    cpdef bint closed(self) except -1:
        """The server has closed its side.  True: so the body that was being read is whole.

        Raises BadResponse when a response, or a part of one, will never come.
        """
        cdef int position = self.position
        cdef uint64_t left = self.left
        cdef bint begun = self.rest is not None
        self.drop()
        self.rest = None
        self.reusable = False
        if position == CLOSE:
            return True
        if position == LENGTH and left:
            raise BadResponse(f"the server closed the connection {left} bytes before the end of its response")
        if position == CHUNKS:
            raise BadResponse("the server closed the connection before the last chunk of its response")
        if position == BETWEEN and (self.asked or begun):
            raise BadResponse(f"the server closed the connection {'in the middle of' if begun else 'before'} a response")
        return False

    cdef Py_ssize_t find_head(self, const unsigned char *data, Py_ssize_t n) except -1:
        if not self.asked or not self.reusable:
            raise BadResponse(f"the server sends what nobody asked for: {data[:min(n, 60)]!r}")
        return response_head_bytes(data, n, self.searched)

    cdef int read_head(self) except -1:
        self.head = None
        self.head = parse_response_head(self.raw)
        return 0

    cdef int begin_body(self) except -1:
        cdef ResponseHead head = self.head
        cdef bint bare
        if head.status < 200:
            return self._interim()
        bare = self.asked.popleft() or head.status == 204 or head.status == 304
        self.interim = 0
        self.come = 0
        self.reusable = head.keep_alive
        if bare:
            self.position, self.left = LENGTH, 0
        elif head.chunked:
            self.position, self.decoder = CHUNKS, ChunkDecoder.__new__(ChunkDecoder)
            self.decoder.chunks_max = -1  # a stream may have any number; what is kept of them its reader bounds
        elif head.content_length >= 0:
            if <uint64_t>head.content_length > self.body_max:
                raise self._too_large(<uint64_t>head.content_length)
            self.position, self.left = LENGTH, head.content_length
        else:
            self.position, self.reusable = CLOSE, False
        return 0

    cdef int _interim(self) except -1:
        """100 Continue, and whatever else comes before the response that counts."""
        if self.head.status == 101:
            raise BadResponse("the server switches to another protocol, which nobody asked for")
        self.interim += 1
        if self.interim > INTERIM_MAX:
            raise BadResponse(f"the server sent more than {INTERIM_MAX} interim responses to one request")
        return 0

    cdef int count(self) except -1:
        self.come += <uint64_t>self.nbytes
        if self.come > self.body_max:
            raise self._too_large(self.come)
        return 0

    cdef object _too_large(self, uint64_t nbytes):
        return BadResponse(f"the server's response has {nbytes} bytes and more, {self.body_max} is the limit")

    cdef object bad_chunk(self, object error):
        return BadResponse(error.message)

    cdef MessageHead latest(self):
        return self.head
