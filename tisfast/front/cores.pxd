# Who shares a core with whom, where there are two.
from libc.stdint cimport int64_t, uint64_t
from tisfast.engine.served cimport Runtime

# Something that is not done before a moment, which comes later each time that it was of no use.
cdef struct Hold:
    int64_t ns, until_ns

# What a look at a place takes.
cdef struct Cost:
    double ns                            # a moving mean
    int64_t looks                        # that it is made of
    int64_t seen_ns                      # when the last of them was

cdef class Places:
    cdef int home                        # where the client shall be
    cdef int place                       # where the last look saw it
    cdef int streak                      # looks since then that saw the same
    cdef int64_t looked_ns               # when the last of them was
    cdef list spans                      # what the last of the streak took, in ns
    cdef int target                      # where we have got it and compare; STAY: nothing is compared
    cdef int came_from
    cdef double before_ns                # what a look took there
    cdef Cost costs[4]                   # of each place, as far as it has been there
    cdef Hold returns[4]                 # ways home, by where from
    cdef Hold undone                     # the same from where it is known to be worse
    cdef Hold trials[4]                  # ways to another place, to see whether it is a better one
    cdef void _forget(self, int64_t now_ns) noexcept
    cdef int _decide(self, int64_t now_ns) except -2
    cdef int _next_trial(self) noexcept
    cdef bint _is_worse(self, int place) noexcept
    cdef bint _is_better(self, int place) noexcept
    cdef int64_t _known(self, int place) noexcept
    cdef double _compared(self, int place) noexcept
    cdef void _note(self, Cost *cost, int64_t span_ns) noexcept
    cdef void _settle_in(self, int place, int64_t now_ns) noexcept
    cdef void _worth_it(self, int64_t now_ns) noexcept
    cdef void _in_vain(self, int64_t now_ns) noexcept
    cdef void _interrupted(self, int64_t now_ns) noexcept
    cdef bint _may_return(self, int64_t now_ns) noexcept
    cdef int _go(self, int target) except -2
    cdef int _judge(self, int64_t now_ns) except -2
    cdef int _back(self, int64_t now_ns) noexcept
    cdef double _span_ns(self) except -1

cdef class Cores:
    cdef int one, other                  # the two cores that we may use; -1: there are more, or fewer, and nothing is done
    cdef int unseen                      # requests until the next look
    cdef int worker_pid                  # of whose requests the last look was
    cdef Places places
    # A request of so many bytes has come in over this socket: the small ones are counted.
    cdef int seen(self, int fd, Runtime runtime, uint64_t nbytes) except -1
    cdef int _look(self, int fd, Runtime runtime) except -1
