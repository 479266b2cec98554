# gRPC messages on their way out.  Layer 4 (front).
from libc.stdint cimport int64_t, uint64_t
from tisfast.native.gather_write cimport Outgoing, iovec
from tisfast.wire.grpc.respond cimport GrpcBody

cdef enum Coding:
    IDENTITY = 0
    GZIP = 1
    DEFLATE = 2

cdef class OutMessage:
    """One length-prefixed message: bytes of its own, or pieces of which the large ones lie in `owner`'s blocks."""
    cdef bytes text
    cdef iovec *pieces                   # NULL: `text` is all
    cdef int count
    cdef uint64_t nbytes
    cdef uint64_t sent
    cdef int piece                       # where `sent` is: in this piece, so far
    cdef uint64_t piece_sent
    cdef object owner
    cdef object traced                   # traced.TracedAnswers of a sampled request, or None
    cdef int64_t counted                 # of its call's `unsent`, until it has gone
    cdef int take(self, Outgoing out, uint64_t n) except -1

# The message in `body` (one message, without prefix), which may be rendered into again.
cdef OutMessage rendered_message(GrpcBody body, object owner, Coding coding)
cdef OutMessage bytes_message(bytes data, Coding coding)
# The coding that an answer level asks for among those a client accepts (bits 1 << Coding), as gRPC's libraries choose.
cdef Coding coding_for(int level, int accepts) noexcept
cdef bytes coding_name(Coding coding)
cdef str coding_text(Coding coding)      # as wire.compress names it, "" for IDENTITY
# What a codec process has written (codec.jobs.Rendered) of an answer.
cdef OutMessage written_message(object rendered, object answer, Coding coding)
