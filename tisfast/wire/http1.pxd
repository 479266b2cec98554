# HTTP/1.1 sessions without a socket: bytes in, events out.  Layer 2 (wire).
from libc.stdint cimport uint64_t
from tisfast.wire.chunked cimport ChunkDecoder
from tisfast.wire.client_head cimport RequestHead, ResponseHead
from tisfast.wire.head cimport Head, MessageHead

cdef enum Event:
    NEED_MORE        # of what is there nothing more can be said
    HEAD             # a message begins: the session's `head`
    DATA             # data[0 : nbytes] of its body, until the next call
    END              # it is whole

cdef enum Position:  # of what comes next
    BETWEEN          # messages
    LENGTH           # in a body of known length
    CHUNKS           # in one that comes in chunks
    CLOSE            # in one that ends with the connection
    DROPPED          # nothing that comes is looked at any more

cdef class Http1Session:
    """One side of a connection reads the messages of the other: `feed`, then `next` until it needs more, then `settle`.

    A large body need not come through here: while `left` bytes of known length are to come, they may be received anywhere, and
    `received` told how many.
    """
    cdef int position
    cdef uint64_t left                   # in LENGTH: bytes of the body that have not come
    cdef const unsigned char *data       # of a DATA event
    cdef Py_ssize_t nbytes
    cdef bint fresh                      # the latest head is not the same bytes as the one before
    cdef bytes raw                       # the latest head, or None
    cdef ChunkDecoder decoder            # in CHUNKS
    cdef bytes rest                      # what came and could not be looked at yet, or None
    cdef const unsigned char *begin      # between `feed` and `settle`: of what is to be looked at, ...
    cdef const unsigned char *at         # ... how far, ...
    cdef const unsigned char *end        # ... and where it ends
    cdef Py_ssize_t searched             # bytes of an incomplete head that hold no end
    # data[0 : n] comes next, and must stay until `settle`; with n = 0, what was left over is looked at again.
    cdef int feed(self, const unsigned char *data, Py_ssize_t n) except -1
    # Returns an Event.  Raises TisError for what is not HTTP/1.x; nothing further can be understood then: `drop`.
    cdef int next(self) except -1
    # The fed memory is somebody else's again.  True: what is left over begins with another message than it did before.
    cdef bint settle(self) except -1
    # n bytes of the body came elsewhere.  True: it is whole, and END is not told again.
    cdef bint received(self, uint64_t n) noexcept
    # Nothing that came or comes is looked at.
    cdef int drop(self) except -1
    cdef int _head(self) except -1
    cdef int _chunk(self) except -1
    # ---- what the two sides differ in
    cdef Py_ssize_t find_head(self, const unsigned char *data, Py_ssize_t n) except -1   # its bytes, 0: incomplete
    cdef int read_head(self) except -1                   # of `raw`, which is new
    cdef int count(self) except -1                       # `nbytes` of a body whose length is not known beforehand
    cdef int begin_body(self) except -1                  # of the message whose head this was: sets `position`
    cdef object bad_chunk(self, object error)            # of a body whose chunks are none
    cdef MessageHead latest(self)                        # the head

cdef class Http1Server(Http1Session):
    """Requests in."""
    cdef readonly Head head              # the latest one; None: it could not be read
    cdef bint continue_owed              # the client waits to be told that it may send the body

cdef class Http1Client(Http1Session):
    """Responses in, in the order in which requests went out."""
    cdef readonly ResponseHead head      # the latest one, which may be interim (status below 200): no END follows that
    cdef object asked                    # deque: of each request that is not answered, whether it was HEAD
    cdef int interim                     # responses before the one that counts
    cdef int _interim(self) except -1
    cdef object _too_large(self, uint64_t nbytes)
    cdef readonly bint reusable          # another request may follow, once all have been answered
    cdef uint64_t body_max               # bytes that the body of one response may have
    cdef uint64_t come                   # of a body whose length is not known beforehand
    # A request with this head is being sent.
    cpdef int sent(self, RequestHead request) except -1
    # The server closed its side.  True: that was the end of the body that was being read.  Raises BadResponse when something is missing.
    cpdef bint closed(self) except -1
