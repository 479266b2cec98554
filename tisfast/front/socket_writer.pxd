# Writing to one socket: straight into the kernel while it takes bytes, through the transport for what it does not.
from libc.stdint cimport int64_t, uint64_t

cdef extern from "<sys/uio.h>":
    struct iovec:
        void *iov_base
        size_t iov_len

cdef enum:
    PIECES_MAX = 67  # HTTP head, JSON, OUTPUTS_MAX tensors

cdef class SocketWriter:
    cdef object transport
    cdef object loop
    cdef int fd                          # -1: only through the transport (TLS)
    cdef int status                      # HTTP's, of the answer that was sent last
    cdef readonly uint64_t sent_bytes    # of all answers, what the transport still holds included
    cdef bint backlog                    # bytes of ours lie in the transport or wait for it
    cdef object waiting                  # deque of what the transport has not been given
    cdef Py_ssize_t waiting_bytes
    cdef readonly bint held              # the client is not to be read from
    cdef bint resting                    # nor in this turn of the loop
    cdef bint stopped                    # the transport reads nothing
    cdef bint turn_asked                 # `_have_turn` will be called
    cdef bint eof_owed                   # our side is to end once nothing waits
    cdef Py_ssize_t unsent_before        # at the last sweep
    cdef int64_t sent_tick               # when that last changed
    cdef bint paused, draining, ending   # by the transport; slices are being written; close once nothing waits
    # Send n pieces.  The first `passing` lie in memory that is written again after this call: what the kernel does not
    # take of them is copied.  The others are kept alive by `owner`, for as long as it takes.
    cdef int send(self, iovec *pieces, int n, int passing, object owner) except -1
    cdef int write(self, bytes data) except -1  # through the transport, behind what waits
    cdef int pause(self) except -1              # the transport said pause_writing
    cdef int resume(self) except -1             # it said resume_writing; `backlog` tells whether that was all
    cdef int close(self) except -1              # once everything is with the transport
    cdef int drop(self) except -1               # the connection is gone
    # Do not read from the client, or do again; nothing happens when it is so already.
    cdef int hold(self, bint held) except -1
    cdef int rest(self) except -1               # do not read from it before the next turn of the loop
    cdef int write_eof(self) except -1          # end our side, behind what waits
    # Swept, at each tick: for how many of them the client has taken nothing of what waits for it.
    cdef int64_t unread_for(self, int64_t tick) except -1
    # Every byte of ours, and the end of ours, has reached the client's machine.
    cdef bint arrived(self) except -1
    cdef Py_ssize_t unsent(self) except -1      # bytes of ours that are known not to be with the kernel
    cdef int _update_reading(self) except -1
    cdef int _drain(self) except -1
    cdef int _write_slice(self) except -1
    cdef int _ask_turn(self) except -1
    cdef ssize_t _send_turn(self, iovec *pieces, int n, size_t room) noexcept
    cdef int _queue(self, iovec *pieces, int n, int passing, object owner, size_t sent) except -1
