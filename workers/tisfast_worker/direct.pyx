# cython: binding=False
"""Calls of csrc that the hot path makes, without ctypes' cost of some 0.7 us each: native.Library takes them from here
where this module fits the interpreter.  csrc is compiled in, and what is here keeps no state outside of its arguments.

Pointers are plain integers, as in native.py.  The GIL is kept, but for the two waits.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from "tf_ring.h" nogil:
    ctypedef struct channel_t "struct tf_channel":
        pass
    ctypedef struct ring_t "struct tf_ring":
        pass
    ctypedef struct bell_t "struct tf_bell":
        pass
    void* c_reserve "tf_ring_reserve"(channel_t*, ring_t*, uint32_t)
    void c_publish "tf_ring_publish"(ring_t*, uint32_t)
    void c_take "tf_ring_take"(ring_t*, uint32_t)
    uint64_t c_pending "tf_ring_pending"(const ring_t*)
    int64_t c_worker_wait "tf_worker_wait"(channel_t*, int64_t, int64_t)
    int64_t c_reply_wait "tf_reply_wait"(channel_t*, int64_t, int64_t)
    int c_reply_took "tf_reply_took"(channel_t*, uint32_t)
    int c_bell_ring "tf_bell_ring"(bell_t*, int)

cdef extern from "tf_output.h" nogil:
    ctypedef struct arena_t "struct tf_arena":
        pass
    uint64_t c_output_take "tf_output_take"(arena_t*, uint64_t)
    uint64_t c_output_collect "tf_output_collect"(channel_t*, arena_t*)
    int c_arena_give "tf_arena_give"(arena_t*, uint64_t)
    uint64_t c_used_blocks "tf_arena_used_blocks"(const arena_t*)


def tf_ring_reserve(size_t channel, size_t ring, uint32_t ahead):
    """See tf_ring.h."""
    return <size_t>c_reserve(<channel_t*>channel, <ring_t*>ring, ahead)


def tf_ring_publish(size_t ring, uint32_t count):
    """See tf_ring.h."""
    c_publish(<ring_t*>ring, count)


def tf_ring_take(size_t ring, uint32_t count):
    """See tf_ring.h."""
    c_take(<ring_t*>ring, count)


def tf_ring_pending(size_t ring):
    """See tf_ring.h."""
    return c_pending(<ring_t*>ring)


def tf_worker_wait(size_t channel, int64_t spin_ns, int64_t timeout_ns):
    """See tf_ring.h.  Without the GIL."""
    cdef int64_t pending
    with nogil:
        pending = c_worker_wait(<channel_t*>channel, spin_ns, timeout_ns)
    return pending


def tf_reply_wait(size_t channel, int64_t spin_ns, int64_t timeout_ns):
    """See tf_ring.h.  Without the GIL."""
    cdef int64_t pending
    with nogil:
        pending = c_reply_wait(<channel_t*>channel, spin_ns, timeout_ns)
    return pending


def tf_reply_took(size_t channel, uint32_t count):
    """See tf_ring.h."""
    return c_reply_took(<channel_t*>channel, count)


def tf_bell_ring(size_t bell, int eventfd):
    """See tf_ring.h."""
    return c_bell_ring(<bell_t*>bell, eventfd)


def tf_output_take(size_t arena, uint64_t nbytes):
    """See tf_output.h."""
    return c_output_take(<arena_t*>arena, nbytes)


def tf_output_collect(size_t channel, size_t arena):
    """See tf_output.h."""
    return c_output_collect(<channel_t*>channel, <arena_t*>arena)


def tf_arena_give(size_t arena, uint64_t block):
    """See tf_arena.h."""
    return c_arena_give(<arena_t*>arena, block)


def tf_arena_used_blocks(size_t arena):
    """See tf_arena.h."""
    return c_used_blocks(<arena_t*>arena)
