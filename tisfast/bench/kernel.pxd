# Clocks, epoll, timers and sockets of the kernel, as the load uses them.  Layer 5 (bench).
from libc.errno cimport errno
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

cdef extern from "<sys/socket.h>":
    enum:
        MSG_NOSIGNAL
        MSG_DONTWAIT
    ssize_t recv(int, void *, size_t, int)
    ssize_t send(int, const void *, size_t, int)

cdef extern from "<unistd.h>":
    ssize_t read(int, void *, size_t)

cdef inline int64_t monotonic() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec

cdef inline int watch(int epoll, int fd, int operation, uint32_t events, uint64_t told) except -1:
    """epoll tells `told` when one of these events is there."""
    cdef epoll_event event
    event.events, event.data.u64 = events, told
    if epoll_ctl(epoll, operation, fd, &event) < 0:
        raise OSError(errno, "epoll_ctl failed")
    return 0

cdef inline int ring_at(int timer, int64_t ns) except -1:
    """At this time of CLOCK_MONOTONIC."""
    cdef itimerspec at
    at.it_interval.tv_sec = at.it_interval.tv_nsec = 0
    at.it_value.tv_sec, at.it_value.tv_nsec = ns // 1_000_000_000, ns % 1_000_000_000
    if timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) < 0:
        raise OSError(errno, "timerfd_settime failed")
    return 0
