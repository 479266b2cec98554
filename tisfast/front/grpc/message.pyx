"""gRPC messages on their way out: prefix, compression, gathering.  Layer 4 (front)."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint64_t
from libc.string cimport memcpy
from tisfast.native.gather_write cimport Outgoing, iovec
from tisfast.native.memory cimport Block
from tisfast.wire.grpc.respond cimport GrpcBody
from tisfast.wire.record cimport Answer, OutputRef

from tisfast import limits, tuning
from tisfast.errors import Internal
from tisfast.wire.compress import compress

cdef enum:
    PREFIX_BYTES = 5

cdef size_t COPIED_BYTES_MAX = tuning.GRPC_COPIED_PIECE_BYTES_MAX
cdef uint64_t SMALL_BYTES = tuning.GRPC_SMALL_MESSAGE_BYTES
cdef uint64_t MESSAGE_BYTES_MAX = limits.GRPC_MESSAGE_BYTES_MAX


cdef bytes coding_name(Coding coding):
    return b"identity" if coding == IDENTITY else b"gzip" if coding == GZIP else b"deflate"


cdef Coding coding_for(int level, int accepts) noexcept:
    cdef bint gzip = accepts >> GZIP & 1, deflate = accepts >> DEFLATE & 1
    if level == 0 or not (gzip or deflate):
        return IDENTITY
    if gzip and (level == 1 or not deflate):
        return GZIP
    return DEFLATE


@cython.freelist(128)
cdef class OutMessage:
    """See message.pxd."""

    def __dealloc__(self):
        PyMem_Free(self.pieces)

    cdef int take(self, Outgoing out, uint64_t n) except -1:
        """Adds the next n bytes to `out`; n is at most what is left."""
        cdef unsigned char *at
        cdef uint64_t part
        while n:
            if self.pieces == NULL:
                at = <unsigned char *>PyBytes_AS_STRING(self.text) + self.sent
                part = n
            else:
                at = <unsigned char *>self.pieces[self.piece].iov_base + self.piece_sent
                part = min(n, self.pieces[self.piece].iov_len - self.piece_sent)
                self.piece_sent += part
                if self.piece_sent == self.pieces[self.piece].iov_len:
                    self.piece += 1
                    self.piece_sent = 0
            if part <= COPIED_BYTES_MAX and not out.full():
                out.put(at, part)
            else:
                out.add(at, part)
                out.keep(self)
            self.sent += part
            n -= part
        return 0


cdef inline void write_prefix(unsigned char *at, uint64_t nbytes, bint compressed) noexcept:
    at[0] = compressed
    at[1] = <unsigned char>(nbytes >> 24)
    at[2] = <unsigned char>(nbytes >> 16)
    at[3] = <unsigned char>(nbytes >> 8)
    at[4] = <unsigned char>nbytes


cdef OutMessage bytes_message(bytes data, Coding coding):
    cdef OutMessage message = OutMessage.__new__(OutMessage)
    cdef bytes text
    if coding != IDENTITY:
        data = compress("gzip" if coding == GZIP else "deflate", data)
    check_size(<uint64_t>len(data))
    text = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + PyBytes_GET_SIZE(data))
    write_prefix(<unsigned char *>PyBytes_AS_STRING(text), <uint64_t>PyBytes_GET_SIZE(data), coding != IDENTITY)
    memcpy(PyBytes_AS_STRING(text) + PREFIX_BYTES, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    message.text = text
    message.nbytes = <uint64_t>PyBytes_GET_SIZE(text)
    return message


cdef int check_size(uint64_t nbytes) except -1:
    if nbytes > MESSAGE_BYTES_MAX:
        raise Internal(
            f"Response has byte size {nbytes} which exceeds gRPC's byte size limit {MESSAGE_BYTES_MAX}.")
    return 0


cdef OutMessage rendered_message(GrpcBody body, object owner, Coding coding):
    cdef OutMessage message
    check_size(body.nbytes)
    if coding != IDENTITY:
        return bytes_message(joined(body), coding)
    message = OutMessage.__new__(OutMessage)
    message.nbytes = PREFIX_BYTES + body.nbytes
    if message.nbytes <= SMALL_BYTES:
        message.text = PyBytes_FromStringAndSize(NULL, message.nbytes)
        copy_pieces(body, <unsigned char *>PyBytes_AS_STRING(message.text), True)
    else:
        refer(message, body)
        message.owner = owner
    write_prefix(<unsigned char *>PyBytes_AS_STRING(message.text), body.nbytes, False)
    return message


cdef str coding_text(Coding coding):
    return "" if coding == IDENTITY else coding_name(coding).decode()


cdef OutMessage written_message(object rendered, object answer, Coding coding):
    cdef OutMessage message = OutMessage.__new__(OutMessage)
    cdef Block block = rendered.text
    cdef OutputRef *out
    cdef uint64_t nbytes = 0
    message.text = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES)
    message.pieces = <iovec *>PyMem_Malloc((len(rendered.parts) + 1) * sizeof(iovec))
    if message.pieces == NULL:
        raise MemoryError()
    message.pieces[0].iov_base = PyBytes_AS_STRING(message.text)
    message.pieces[0].iov_len = PREFIX_BYTES
    message.count = 1
    for output, offset, length in rendered.parts:
        if output < 0:
            message.pieces[message.count].iov_base = block.data + <uint64_t>offset
            message.pieces[message.count].iov_len = <uint64_t>length
        else:
            out = &(<Answer?>answer).outputs[<int>output]
            message.pieces[message.count].iov_base = <void *>out.data
            message.pieces[message.count].iov_len = out.nbytes
        nbytes += message.pieces[message.count].iov_len
        message.count += 1
    check_size(nbytes)
    write_prefix(<unsigned char *>PyBytes_AS_STRING(message.text), nbytes, coding != IDENTITY)
    message.nbytes = PREFIX_BYTES + nbytes
    message.owner = (block, answer)
    return message


cdef bytes joined(GrpcBody body):
    cdef bytes text = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + body.nbytes)
    copy_pieces(body, <unsigned char *>PyBytes_AS_STRING(text), True)
    return text[PREFIX_BYTES:]


cdef inline bint is_text(GrpcBody body, int i) noexcept:
    """Whether a piece lies in the buffer that is rendered into again."""
    cdef const unsigned char *at = <const unsigned char *>body.pieces[i].data
    return body.text.data <= at < body.text.data + body.text.cap


cdef void copy_pieces(GrpcBody body, unsigned char *at, bint everything) noexcept:
    """Behind the prefix; everything: also what lies in blocks."""
    cdef int i
    at += PREFIX_BYTES
    for i in range(body.count):
        if everything or is_text(body, i):
            memcpy(at, body.pieces[i].data, body.pieces[i].nbytes)
            at += body.pieces[i].nbytes


cdef int refer(OutMessage message, GrpcBody body) except -1:
    """Text is copied, tensors are referred to."""
    cdef uint64_t text_bytes = PREFIX_BYTES
    cdef unsigned char *at
    cdef int i
    for i in range(body.count):
        if is_text(body, i):
            text_bytes += body.pieces[i].nbytes
    message.text = PyBytes_FromStringAndSize(NULL, text_bytes)
    at = <unsigned char *>PyBytes_AS_STRING(message.text)
    copy_pieces(body, at, False)
    message.pieces = <iovec *>PyMem_Malloc((body.count + 1) * sizeof(iovec))
    if message.pieces == NULL:
        raise MemoryError()
    message.pieces[0].iov_base = at
    message.pieces[0].iov_len = PREFIX_BYTES
    message.count = 1
    at += PREFIX_BYTES
    for i in range(body.count):
        if body.pieces[i].nbytes == 0:
            continue
        if is_text(body, i):
            message.pieces[message.count].iov_base = at
            at += body.pieces[i].nbytes
        else:
            message.pieces[message.count].iov_base = <void *>body.pieces[i].data
        message.pieces[message.count].iov_len = body.pieces[i].nbytes
        message.count += 1
    return 0
