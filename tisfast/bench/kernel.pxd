# Clocks, epoll and timers of the kernel, as the load uses them.  Layer 5 (bench).
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "<time.h>":
    int CLOCK_MONOTONIC
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec *) nogil

cdef extern from "<sys/epoll.h>":
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    enum:
        EPOLLIN
        EPOLLOUT
        EPOLLERR
        EPOLLHUP
        EPOLL_CTL_ADD
        EPOLL_CTL_MOD
        EPOLL_CTL_DEL
        EPOLL_CLOEXEC
    int epoll_create1(int)
    int epoll_ctl(int, int, int, epoll_event *)
    int epoll_wait(int, epoll_event *, int, int) nogil

cdef extern from "<sys/timerfd.h>":
    struct itimerspec:
        timespec it_interval
        timespec it_value
    enum:
        TFD_NONBLOCK
        TFD_CLOEXEC
        TFD_TIMER_ABSTIME
    int timerfd_create(int, int)
    int timerfd_settime(int, int, const itimerspec *, itimerspec *)

cdef extern from "<unistd.h>":
    ssize_t read(int, void *, size_t)

cdef inline int64_t monotonic() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec
