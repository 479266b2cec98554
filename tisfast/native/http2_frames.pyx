"""Heads of HTTP/2 frames, seen before nghttp2 sees them; see http2_frames.pxd.  Layer 1 (native).

nghttp2 bounds streams, CONTINUATION frames and unsent acknowledgements.  It has no bound for frames without end that
move nothing, none for the bytes of a header block, and it closes the connection for RST_STREAM of a call that never
began, which grpcio up to at least 1.67 writes for a call that is cancelled early (its own server passes over it).
"""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from tisfast import limits

cdef enum:
    HEAD_BYTES = 9
    PREFACE_BYTES = 24
    RESET_BYTES = 4
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    CONTINUATION = 9
    PADDED = 0x8
    END_HEADERS = 0x4
    MOVED_FRAMES = 4     # idle frames that a message or a frame of an answer excuses: windows, pings, a prefix apart

cdef int IDLE_FRAMES_MAX = limits.HTTP2_IDLE_FRAMES_MAX
cdef int LARGE_HEADS_MAX = limits.HTTP2_LARGE_HEADS_MAX
cdef size_t SMALL_DATA_BYTES = limits.HTTP2_SMALL_DATA_BYTES
cdef size_t BLOCK_BYTES_MAX = limits.HTTP2_HEAD_BLOCK_BYTES_MAX
cdef size_t FRAME_BYTES_MAX = limits.HTTP2_FRAME_BYTES_MAX
cdef double RESETS_BURST = limits.HTTP2_RESETS_BURST
cdef double RESETS_PER_SECOND = limits.HTTP2_RESETS_PER_SECOND


cdef class FrameGate:
    """See http2_frames.pxd."""

    def __cinit__(self):
        self.left = PREFACE_BYTES
        self.resets_left = RESETS_BURST

    cdef size_t next(self, const uint8_t *data, size_t n, Piece *piece) except? 0:
        cdef size_t at = 0, used
        piece.data, piece.nbytes = data, 0
        if self.dropping:
            used = min(self.dropping, n)
            self.dropping -= used
            return used
        if self.head_bytes:
            used = min(<size_t>HEAD_BYTES - self.head_bytes, n)
            memcpy(self.head + self.head_bytes, data, used)
            self.head_bytes += used
            if self.head_bytes == HEAD_BYTES:
                self.head_bytes = 0
                if self.admit(self.head):
                    piece.data, piece.nbytes = self.head, HEAD_BYTES
            return used
        while True:
            used = min(self.left, n - at)
            self.left -= used
            at += used
            piece.nbytes = at
            if at == n:
                return n
            if n - at < HEAD_BYTES:
                self.head_bytes = n - at
                memcpy(self.head, data + at, self.head_bytes)
                return n
            at += HEAD_BYTES
            if not self.admit(data + at - HEAD_BYTES):
                return at

    cdef bint admit(self, const uint8_t *head) except -1:
        """Whether the library may see this frame."""
        cdef size_t nbytes = <size_t>head[0] << 16 | <size_t>head[1] << 8 | head[2]
        cdef int kind = head[3]
        cdef int32_t stream = <int32_t>(head[5] & 0x7F) << 24 | <int32_t>head[6] << 16 | <int32_t>head[7] << 8 | head[8]
        self.left = nbytes
        self.greeted = True
        if kind == HEADERS or kind == CONTINUATION:
            if kind == HEADERS:
                self.block_bytes = 0
                if stream & 1 and stream > self.last_head:
                    self.last_head = stream
            self.in_block = not head[4] & END_HEADERS
            self.block_bytes += nbytes
            # A frame beyond SETTINGS_MAX_FRAME_SIZE has an error of its own, which the library knows.
            return nbytes > FRAME_BYTES_MAX or self.block_bytes <= BLOCK_BYTES_MAX or self.refuse(b"too_large_head")
        if kind == DATA and nbytes >= SMALL_DATA_BYTES and not head[4] & PADDED:
            return True
        if kind == RST_STREAM:
            if nbytes == RESET_BYTES and stream & 1 and stream > self.last_head and not self.in_block:
                self.left, self.dropping = 0, RESET_BYTES
                self.count_idle()
                return False
            self.resets_left -= 1
            return self.resets_left >= 0 or self.refuse(b"too_many_resets")
        return self.count_idle()

    cdef bint count_idle(self) except -1:
        self.idle_frames += 1
        return self.idle_frames < IDLE_FRAMES_MAX or self.refuse(b"too_many_idle_frames")

    cdef int refuse(self, bytes reason) except -1:
        self.refusal = reason
        return 0

    cdef int count_large_head(self) except -1:
        self.large_heads += 1
        return self.refuse(b"too_many_large_heads") if self.large_heads > LARGE_HEADS_MAX else 0

    cdef void moved(self) noexcept:
        self.idle_frames = max(0, self.idle_frames - MOVED_FRAMES)

    cdef void second(self) noexcept:
        self.idle_frames = self.large_heads = 0
        self.resets_left = min(RESETS_BURST, self.resets_left + RESETS_PER_SECOND)
