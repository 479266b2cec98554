# Who shares a core with whom, where there are two.
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.served cimport Runtime

cdef class Cores:
    cdef int one, other                  # the two cores that we may use; -1: there are more, or fewer, and nothing is done
    cdef int unseen                      # requests until the next look
    cdef bint together                   # what the last look saw: the client on the server's core
    cdef int streak                      # looks since then that saw the same
    cdef int64_t streak_ns, looked_ns    # when the first and the last of them were
    cdef bint judging                    # we have joined the client, and are to see what that was worth
    cdef int64_t apart_ns                # what a look took before
    cdef int64_t hold_ns, hold_until_ns
    # A request of so many bytes has come in over this socket: the small ones are counted.
    cdef int seen(self, int fd, Runtime runtime, uint64_t nbytes) except -1
    cdef int _look(self, int fd, Runtime runtime) except -1
    cdef bint _judge(self, int64_t now_ns) noexcept
    cdef void _hold(self, int64_t now_ns) noexcept
